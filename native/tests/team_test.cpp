// Teams of threads: completeness, exceptions, interruption, nesting, many short lives, fork(), and
// how many threads there are.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>

#if defined(__linux__)
#include <sys/wait.h>
#include <unistd.h>
#endif

#include "check.hpp"
#include "densecrf/parallel.hpp"
#include "thread_limits.hpp"

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

// Threads help: while one waits inside a chunk, another does the rest.
void test_workers_come() {
  Team team(2);
  CHECK(team.size() == 2);
  std::atomic<int> seen{0};
  team.run(2, 1, [&](std::int64_t, std::int64_t, int) {
    ++seen;
    while (seen < 2) std::this_thread::yield();
  });
  CHECK(seen == 2);
}

// Teams at work at the same time share the processors.
void test_teams_share() {
  Team first(8);
  CHECK(first.size() == 8);
  {
    Team second(8);
    CHECK(second.size() == 4);
    Team third(8);
    CHECK(third.size() == 2);
  }
  Team again(8);
  CHECK(again.size() == 4);
}

void test_number_follows_the_work() {
  const std::int64_t before = set_work_per_thread(1000);
  CHECK(threads_for(0, 0) == 1 && threads_for(1999, 0) == 1);
  CHECK(threads_for(2000, 0) == 2 && threads_for(2000, 1) == 1 && threads_for(7000, 3) == 3);
  CHECK(threads_for(INT64_MAX, 0) == 8 && threads_for(INT64_MAX, 100) == 8);
  for (std::int64_t work = 0; work < 20'000; work += 100)
    CHECK(threads_for(work, 0) <= threads_for(work + 100, 0));
  CHECK(set_work_per_thread(before) == 1000);
}

void test_quota() {
  namespace fs = std::filesystem;
  const fs::path root =
      fs::temp_directory_path() / ("densecrf_quota_" + std::to_string(::getpid()));
  const auto write = [&](const std::string& name, const std::string& text) {
    fs::create_directories((root / name).parent_path());
    std::ofstream(root / name) << text;
  };
  const std::string unified = "0::/outer/inner\n";
  CHECK(quota_of(unified, root) == INT_MAX);
  write("outer/cpu.max", "max 100000\n");
  CHECK(quota_of(unified, root) == INT_MAX);
  write("outer/cpu.max", "350000 100000\n");
  CHECK(quota_of(unified, root) == 4);
  write("outer/inner/cpu.max", "50000 100000\n");
  CHECK(quota_of(unified, root) == 1);
  CHECK(quota_of("0::/elsewhere\n", root) == INT_MAX);
  write("cpu.max", "200000 100000\n");
  CHECK(quota_of("0::/elsewhere\n", root) == 2);
  const std::string divided = "4:cpuset:/job\n3:cpu,cpuacct:/job\n";
  CHECK(quota_of(divided, root) == INT_MAX);
  write("cpu/job/cpu.cfs_quota_us", "-1\n");
  write("cpu/job/cpu.cfs_period_us", "100000\n");
  CHECK(quota_of(divided, root) == INT_MAX);
  write("cpu/job/cpu.cfs_quota_us", "300000\n");
  CHECK(quota_of(divided, root) == 3);
  CHECK(quota_of("nonsense", root) == INT_MAX && quota_of("0::odd\n", root) == 2);
  fs::remove_all(root);
}

// Neither TSan nor QEMU's user mode knows threads in children of programs with threads.
#if defined(__linux__) && !defined(__SANITIZE_THREAD__) && !defined(DENSECRF_EMULATED)
#define DENSECRF_TEST_FORK 1
#endif

#if defined(DENSECRF_TEST_FORK)
// Children have workers of their own, also those made while the parent's are at work.
void test_fork() {
  const auto works = [] {
    Team team(4);
    std::atomic<int> done{0};
    for (int run = 0; run < 50; ++run)
      team.run(16, 1, [&](std::int64_t, std::int64_t, int) { ++done; });
    return done == 800;
  };
  CHECK(works());
  std::atomic<bool> over{false};
  std::thread busy([&] {
    while (!over) works();
  });
  for (int child = 0; child < 5; ++child) {
    const pid_t pid = ::fork();
    if (pid == 0) ::_exit(works() ? 0 : 1);
    int status = -1;
    CHECK(::waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  over = true;
  busy.join();
}
#endif

}  // namespace

int main() {
  CHECK(available_threads() >= 1);
  set_default_threads(8);  // however few processors there are
  CHECK(available_threads() == 8);
  for (const int threads : {-3, 0, 1, 2, 3, 8}) test_every_index_once(threads);
  for (const int threads : {1, 2, 5}) {
    test_exceptions_reach_the_caller(threads);
    for (const bool in_checkpoints : {false, true}) test_interruption(threads, in_checkpoints);
  }
  test_nested_teams();
  test_many_runs_and_many_teams();
  test_teams_of_several_threads_at_once();
  test_workers_come();
  test_teams_share();
  test_number_follows_the_work();
#if defined(__linux__)
  test_quota();
#if defined(DENSECRF_TEST_FORK)
  test_fork();
#endif
#endif
}
