#include "densecrf/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <utility>

#if defined(__linux__)
#include <sched.h>
#endif

namespace densecrf {

namespace {
constexpr auto kPollEvery = std::chrono::milliseconds(50);
constexpr int kMostThreads = 1024;

// Waits a little for what is about to happen, without giving the processor away: phases follow each
// other closely, and waking a sleeping thread takes longer than most of them.
template <class Condition>
void spin_until(const Condition& happened) {
  constexpr int kSpins = 1000;  // some tens of microseconds
  for (int spin = 0; spin < kSpins && !happened(); ++spin) {
#if defined(__GNUC__) && (defined(__x86_64__) || defined(__i386__))
    __builtin_ia32_pause();
#endif
  }
}

}  // namespace

namespace {
// What DENSECRF_NUM_THREADS says; 0 where it says nothing sensible.
int threads_of_environment() {
  const char* value = std::getenv("DENSECRF_NUM_THREADS");
  const int threads = value == nullptr ? 0 : std::atoi(value);
  return std::clamp(threads, 0, kMostThreads);
}

std::atomic<int> default_threads{threads_of_environment()};
}  // namespace

void set_default_threads(int threads) {
  default_threads = threads;
}

int available_threads() {
  if (const int threads = default_threads; threads > 0) return threads;
#if defined(__linux__)
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
#endif
  return std::max(1u, std::thread::hardware_concurrency());
}

Team::Team(int threads, Poll poll)
    : poll_(std::move(poll)), last_poll_(std::chrono::steady_clock::now()) {
  const int wanted = std::min(threads, kMostThreads) - 1;
  if (wanted > 0) workers_.reserve(static_cast<std::size_t>(wanted));
  for (int t = 1; t <= wanted; ++t) {
    try {
      workers_.emplace_back(&Team::work, this, t);
    } catch (const std::exception&) {
      break;  // the system refuses more threads: the results do not depend on their number
    }
  }
}

Team::~Team() {
  {
    std::lock_guard lock(mutex_);
    quit_ = true;
    published_.fetch_add(1, std::memory_order_release);
  }
  wake_.notify_all();
  for (auto& worker : workers_) worker.join();
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

void Team::work(int thread) {
  std::uint64_t seen = 0;
  for (;;) {
    spin_until([&] { return published_.load(std::memory_order_acquire) != seen; });
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return quit_ || epoch_ != seen; });
      if (quit_) return;
      seen = epoch_;
    }
    drain(thread);
    std::lock_guard lock(mutex_);
    if (busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) idle_.notify_one();
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
  if (workers_.empty() || n_ <= grain_) {
    drain(0);
    finish_or_rethrow();
    return;
  }
  {
    std::lock_guard lock(mutex_);
    busy_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
    ++epoch_;
    published_.store(epoch_, std::memory_order_release);
  }
  wake_.notify_all();
  drain(0);
  spin_until([&] { return busy_.load(std::memory_order_acquire) == 0; });
  std::unique_lock lock(mutex_);
  while (!idle_.wait_for(lock, kPollEvery, [&] { return busy_.load() == 0; })) {
    lock.unlock();
    check_poll();
    lock.lock();
  }
  lock.unlock();
  finish_or_rethrow();
}

}  // namespace densecrf
