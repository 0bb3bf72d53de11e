// A team of threads that lives as long as one call into the core.
//
// There is no global pool: two Python threads may call the core at once, and a child made by fork()
// inherits nothing that could hang. Work is split into chunks whose boundaries depend on the
// problem alone, and no two chunks write to one place, so results are the same bits for any
// number of threads.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace densecrf {

// Thrown out of a Team when its poll function asked to stop.
struct Interrupted : std::exception {
  const char* what() const noexcept override { return "interrupted"; }
};

class Team {
 public:
  // poll() is called on the calling thread every ~50 ms; it returns true to stop the work.
  using Poll = std::function<bool()>;
  // A task gets the half-open range [begin, end) and the index of the thread that runs it.
  using Task = std::function<void(std::int64_t, std::int64_t, int)>;

  explicit Team(int threads, Poll poll = {});
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  // Runs task over [0, n) in chunks of `grain`; returns when all are done.
  void run(std::int64_t n, std::int64_t grain, const Task& task);

  // For tasks that take longer than a moment: throws Interrupted when the work is to stop.
  void checkpoint(int thread);

 private:
  void work(int thread);
  void drain(int thread);
  void check_poll();
  void finish_or_rethrow();

  Poll poll_;
  std::chrono::steady_clock::time_point last_poll_;
  std::vector<std::thread> workers_;

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable idle_;
  std::uint64_t epoch_ = 0;
  std::atomic<int> busy_{0};
  bool quit_ = false;
  std::atomic<std::uint64_t> published_{0};

  const Task* task_ = nullptr;
  std::int64_t n_ = 0;
  std::int64_t grain_ = 1;
  std::atomic<std::int64_t> next_{0};
  std::atomic<bool> stop_{false};
  std::exception_ptr error_;
};

// How many threads a call uses that names no number: what was set, else DENSECRF_NUM_THREADS, else
// as many as this process may use (respects CPU affinity where the system tells).
int available_threads();

// Sets that number for the process; 0 stands for the rest of the rule above but the environment.
void set_default_threads(int threads);

}  // namespace densecrf
