#include "densecrf/parallel.hpp"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "spin.hpp"
#include "thread_limits.hpp"
#include "worker_pool.hpp"

namespace densecrf {

namespace {

constexpr auto kPollEvery = std::chrono::milliseconds(50);
constexpr auto kTail = std::chrono::microseconds(500);  // of waiting for others' last chunks, awake
constexpr int kMostThreads = 1024;

// What DENSECRF_NUM_THREADS says; 0 where it says nothing sensible.
int threads_of_environment() {
  const char* value = std::getenv("DENSECRF_NUM_THREADS");
  const int threads = value == nullptr ? 0 : std::atoi(value);
  return std::clamp(threads, 0, kMostThreads);
}

std::atomic<int> default_threads{threads_of_environment()};
// Numbers that a thread handles in some tens of microseconds, about what waking it may take.
std::atomic<std::int64_t> work_per_thread{1 << 15};

int granted(const Processors& own) {
  if (const int threads = default_threads; threads > 0) return threads;
  return std::min(own.count, quota_of_process());
}

}  // namespace

void set_default_threads(int threads) {
  default_threads = std::clamp(threads, 0, kMostThreads);
}

int available_threads() {
  return granted(Processors::of_calling_thread());
}

std::int64_t set_work_per_thread(std::int64_t work) {
  return work_per_thread.exchange(std::max<std::int64_t>(1, work));
}

int threads_for(std::int64_t work, int threads) {
  const std::int64_t worth = std::max<std::int64_t>(1, work / work_per_thread);
  const int most = threads > 0 ? std::min(threads, kMostThreads) : kMostThreads;
  if (most == 1 || worth == 1) return 1;
  return static_cast<int>(std::min<std::int64_t>(worth, std::min(most, available_threads())));
}

Team::Team(int threads, Poll poll)
    : poll_(std::move(poll)),
      last_poll_(std::chrono::steady_clock::now()),
      pool_(WorkerPool::of_process()) {
  const int teams = pool_.enter();
  if (threads <= 1) return;
  const Processors processors = Processors::of_calling_thread();
  const int wanted = std::min(threads, granted(processors) / teams);
  if (wanted <= 1) return;
  slot_ = pool_.take_slot();
  if (slot_ == nullptr) return;
  pool_.ensure(wanted - 1, processors);
  size_ = wanted;
}

Team::~Team() {
  if (slot_ != nullptr) pool_.give_back(slot_);
  pool_.exit();
}

void Team::check_poll() {
  if (!poll_) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - last_poll_ < kPollEvery) return;
  last_poll_ = now;
  if (poll_()) {
    std::lock_guard lock(mutex_);
    if (!error_) error_ = std::make_exception_ptr(Interrupted{});
    stop_.store(true, std::memory_order_relaxed);
  }
}

void Team::checkpoint(int thread) {
  if (thread == 0) check_poll();
  if (stop_.load(std::memory_order_relaxed)) throw Interrupted{};
}

void Team::drain(int thread) {
  while (!stop_.load(std::memory_order_relaxed)) {
    const std::int64_t begin = next_.fetch_add(grain_, std::memory_order_relaxed);
    if (begin >= n_) return;
    try {
      (*task_)(begin, std::min(begin + grain_, n_), thread);
    } catch (...) {
      std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
      stop_.store(true, std::memory_order_relaxed);
    }
    if (thread == 0) check_poll();
  }
}

void Team::drain_with(int workers) {
  struct Chunks final : Offered {
    explicit Chunks(Team& team) : team(team) {}
    void help(int place) noexcept override { team.drain(place); }
    Team& team;
  } chunks(*this);
  pool_.offer(*slot_, chunks, workers);
  drain(0);
  pool_.close(*slot_);
  const auto done = [&] { return slot_->empty(); };
  if (spin_until(done, kTail)) return;
  while (!done()) {
    slot_->wait_until_empty(kPollEvery);
    check_poll();
  }
}

void Team::finish_or_rethrow() {
  task_ = nullptr;
  stop_.store(false, std::memory_order_relaxed);
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void Team::run(std::int64_t n, std::int64_t grain, const Task& task) {
  if (n <= 0) return;
  task_ = &task;
  n_ = n;
  grain_ = std::max<std::int64_t>(1, grain);
  next_.store(0, std::memory_order_relaxed);
  const std::int64_t chunks = (n_ - 1) / grain_ + 1;
  const auto workers = static_cast<int>(std::min<std::int64_t>(size_, chunks)) - 1;
  if (workers > 0)
    drain_with(workers);
  else
    drain(0);
  finish_or_rethrow();
}

}  // namespace densecrf
