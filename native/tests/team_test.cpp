// The team of threads: completeness, exceptions, interruption, nesting, many short lives.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>

#include "check.hpp"
#include "densecrf/parallel.hpp"

using namespace densecrf;

namespace {

void test_every_index_once(int threads) {
  Team team(threads);
  CHECK(team.size() >= 1 && team.size() <= std::max(1, threads));
  for (const std::int64_t n : {0, 1, 2, 7, 1000}) {
    for (const std::int64_t grain : {-1, 0, 1, 3, 2000}) {
      std::vector<int> seen(static_cast<std::size_t>(n), 0);
      team.run(n, grain, [&](std::int64_t begin, std::int64_t end, int thread) {
        CHECK(thread >= 0 && thread < team.size());
        for (std::int64_t i = begin; i < end; ++i) ++seen[static_cast<std::size_t>(i)];
      });
      CHECK(std::all_of(seen.begin(), seen.end(), [](int count) { return count == 1; }));
    }
  }
}

void test_exceptions_reach_the_caller(int threads) {
  Team team(threads);
  for (int round = 0; round < 200; ++round) {
    std::string caught;
    try {
      team.run(64, 1, [&](std::int64_t begin, std::int64_t, int) {
        if (begin == round % 64) throw std::runtime_error("from " + std::to_string(begin));
      });
    } catch (const std::runtime_error& error) {
      caught = error.what();
    }
    CHECK(caught == "from " + std::to_string(round % 64));
    std::atomic<int> done{0};
    team.run(64, 1, [&](std::int64_t, std::int64_t, int) { ++done; });  // usable afterwards
    CHECK(done == 64);
  }
}

void test_interruption(int threads, bool in_checkpoints) {
  using Clock = std::chrono::steady_clock;
  std::atomic<bool> pressed{false};
  Team team(threads, [&] { return pressed.load(); });
  std::thread presser([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    pressed = true;
  });
  const auto started = Clock::now();
  bool interrupted = false;
  try {
    team.run(in_checkpoints ? threads : 100'000, 1, [&](std::int64_t, std::int64_t, int thread) {
      do {
        std::this_thread::sleep_for(std::chrono::microseconds(200));
        if (in_checkpoints) team.checkpoint(thread);
      } while (in_checkpoints && Clock::now() - started < std::chrono::seconds(20));
    });
  } catch (const Interrupted&) {
    interrupted = true;
  }
  presser.join();
  CHECK(interrupted);
  CHECK(Clock::now() - started < std::chrono::seconds(5));
  pressed = false;
  std::atomic<int> done{0};
  team.run(100, 1, [&](std::int64_t, std::int64_t, int) { ++done; });
  CHECK(done == 100);
}

void test_nested_teams() {
  Team outer(3);
  std::atomic<std::int64_t> total{0};
  outer.run(12, 1, [&](std::int64_t, std::int64_t, int) {
    Team inner(2);
    inner.run(100, 7, [&](std::int64_t begin, std::int64_t end, int) { total += end - begin; });
  });
  CHECK(total == 1200);
}

void test_many_runs_and_many_teams() {
  Team team(4);
  std::int64_t total = 0;
  std::vector<std::int64_t> part(4);
  for (int run = 0; run < 20'000; ++run) {
    std::fill(part.begin(), part.end(), 0);
    team.run(8, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
      part[static_cast<std::size_t>(thread)] += end - begin;
    });
    for (const std::int64_t count : part) total += count;
  }
  CHECK(total == 160'000);
  for (int life = 0; life < 500; ++life) {
    Team brief(3);
    if (life % 2) brief.run(3, 1, [](std::int64_t, std::int64_t, int) {});
  }
}

void test_teams_of_several_threads_at_once() {
  std::vector<std::thread> callers;
  std::atomic<std::int64_t> total{0};
  for (int caller = 0; caller < 3; ++caller)
    callers.emplace_back([&] {
      Team team(2);
      for (int run = 0; run < 500; ++run)
        team.run(10, 1, [&](std::int64_t, std::int64_t, int) { ++total; });
    });
  for (auto& caller : callers) caller.join();
  CHECK(total == 15'000);
}

}  // namespace

int main() {
  for (const int threads : {-3, 0, 1, 2, 3, 8}) test_every_index_once(threads);
  for (const int threads : {1, 2, 5}) {
    test_exceptions_reach_the_caller(threads);
    for (const bool in_checkpoints : {false, true}) test_interruption(threads, in_checkpoints);
  }
  test_nested_teams();
  test_many_runs_and_many_teams();
  test_teams_of_several_threads_at_once();
  CHECK(available_threads() >= 1);
}
