// Teams of threads, each for one call into the core.
//
// A team is the calling thread and as many workers of the process (worker_pool.hpp) as come to its
// runs. Work is split into chunks whose boundaries depend on the problem alone, and no two chunks
// write to one place, so results are the same bits for any number of threads.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>

namespace densecrf {

// Thrown out of a Team when its poll function asked to stop.
struct Interrupted : std::exception {
  const char* what() const noexcept override { return "interrupted"; }
};

class WorkerPool;
class Slot;

class Team {
 public:
  // poll() is called on the calling thread every ~50 ms; it returns true to stop the work.
  using Poll = std::function<bool()>;
  // A task gets the half-open range [begin, end) and the index of the thread that runs it.
  using Task = std::function<void(std::int64_t, std::int64_t, int)>;

  // At most so many threads, fewer where other teams are at work: they share the processors.
  explicit Team(int threads, Poll poll = {});
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int size() const { return size_; }

  // Runs task over [0, n) in chunks of `grain`; returns when all are done.
  void run(std::int64_t n, std::int64_t grain, const Task& task);

  // For tasks that take longer than a moment: throws Interrupted when the work is to stop.
  void checkpoint(int thread);

 private:
  void drain(int thread);
  void drain_with(int workers);
  void check_poll();
  void finish_or_rethrow();

  Poll poll_;
  std::chrono::steady_clock::time_point last_poll_;
  int size_ = 1;
  WorkerPool& pool_;
  Slot* slot_ = nullptr;

  const Task* task_ = nullptr;
  std::int64_t n_ = 0;
  std::int64_t grain_ = 1;
  alignas(64) std::atomic<std::int64_t> next_{0};
  alignas(64) std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::exception_ptr error_;
};

// The most threads that a call uses: what was set, else DENSECRF_NUM_THREADS, else as many as the
// system grants this process (processors of the calling thread, quotas of control groups).
int available_threads();

// Sets that number for the process; 0 stands for the rest of the rule above but the environment.
void set_default_threads(int threads);

// How many threads a call uses that touches so many numbers: as many as have at least
// work_per_thread() each, no more than available_threads(), nor than `threads` unless that is 0.
int threads_for(std::int64_t work, int threads);

// What pays for a thread; what it was is returned. Tests set it to share small problems, too.
std::int64_t set_work_per_thread(std::int64_t work);

}  // namespace densecrf
