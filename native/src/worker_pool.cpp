#include "worker_pool.hpp"

#include <algorithm>
#include <bit>
#include <thread>

#include "spin.hpp"

#if defined(__unix__) || defined(__APPLE__)
#define DENSECRF_POSIX 1
#include <pthread.h>
#include <signal.h>
#endif

namespace densecrf {

namespace {

constexpr std::chrono::microseconds kSearch(1000);  // before a worker sleeps

std::atomic<WorkerPool*> pool_of_process{nullptr};

#if defined(DENSECRF_POSIX)
// The parent's pool is left behind where it is: nothing in it can be relied on, locks least of all.
[[maybe_unused]] const int registered =
    pthread_atfork(nullptr, nullptr, [] { pool_of_process.store(nullptr); });

// Blocks all signals, which are for the threads of the program itself, in threads created
// meanwhile.
class NoSignals {
 public:
  NoSignals() {
    sigset_t all;
    sigfillset(&all);
    for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS}) sigdelset(&all, own);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~NoSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;

 private:
  sigset_t before_;
};
#else
struct NoSignals {
  NoSignals() {}
};
#endif

}  // namespace

WorkerPool& WorkerPool::of_process() {
  WorkerPool* held = pool_of_process.load(std::memory_order_acquire);
  if (held) return *held;
  WorkerPool* made = new WorkerPool;  // never freed: workers sleep on it until the process ends
  if (pool_of_process.compare_exchange_strong(held, made)) return *made;
  delete made;
  return *held;
}

Slot* WorkerPool::take_slot() {
  std::uint64_t taken = taken_.load(std::memory_order_relaxed);
  while (~taken != 0) {
    const int first = std::countr_one(taken);
    if (taken_.compare_exchange_weak(taken, taken | std::uint64_t{1} << first,
                                     std::memory_order_acquire))
      return &slots_[static_cast<std::size_t>(first)];
  }
  return nullptr;
}

void WorkerPool::ensure(int workers, const Processors& processors) {
  std::lock_guard lock(create_mutex_);
#if defined(__linux__)
  if (!(processors == processors_))
    for (const pthread_t worker : workers_)
      pthread_setaffinity_np(worker, sizeof processors.set, &processors.set);
#endif
  processors_ = processors;
  const NoSignals meanwhile;
  for (; count_ < workers; ++count_) {
    try {
      std::thread worker(&WorkerPool::work, this);
#if defined(__linux__)
      workers_.push_back(worker.native_handle());
#endif
      worker.detach();
    } catch (const std::exception&) {
      return;  // the system refuses more threads: the results do not depend on their number
    }
  }
}

void WorkerPool::offer(Slot& slot, Offered& offered, int places) {
  slot.offered_ = &offered;
  slot.state_.store(static_cast<std::uint64_t>(places));
  open_.fetch_or(bit(slot));
  wake_for(slot);
}

void WorkerPool::close(Slot& slot) {
  open_.fetch_and(~bit(slot), std::memory_order_relaxed);
  slot.state_.fetch_and(~Slot::kPlaces);
}

int Slot::take_place() {
  std::uint64_t state = state_.load();
  while ((state & kPlaces) != 0)
    if (state_.compare_exchange_weak(state, state + kWorker - 1))
      return static_cast<int>(state & kPlaces);
  return 0;
}

void Slot::leave() {
  if (state_.fetch_sub(kWorker) >= 2 * kWorker || !awaited_.load()) return;
  std::lock_guard lock(mutex_);  // after the caller's last look at the slot, before its sleep
  left_.notify_one();
}

void Slot::wait_until_empty(std::chrono::milliseconds most) {
  std::unique_lock lock(mutex_);
  awaited_.store(true);
  left_.wait_for(lock, most, [&] { return empty(); });
  awaited_.store(false);
}

bool WorkerPool::help_somewhere() {
  for (std::uint64_t open = open_.load(); open != 0; open &= open - 1) {
    Slot& slot = slots_[static_cast<std::size_t>(std::countr_zero(open))];
    const int place = slot.take_place();
    if (place == 0) continue;
    searching_.fetch_sub(1);
    wake_for(slot);
    slot.offered_->help(place);
    slot.leave();
    searching_.fetch_add(1);
    return true;
  }
  return false;
}

bool WorkerPool::on_offer() const {
  for (std::uint64_t open = open_.load(); open != 0; open &= open - 1)
    if (slots_[static_cast<std::size_t>(std::countr_zero(open))].free_places() > 0) return true;
  return false;
}

// A call takes the calling thread about a microsecond: it calls a few, and they call the others.
void WorkerPool::wake_for(const Slot& slot) {
  constexpr int kMostCalls = 3;
  if (sleeping_.load() == 0 || searching_.load() >= slot.free_places()) return;
  int calls = std::min(kMostCalls, slot.free_places() - searching_.load());
  {
    std::lock_guard lock(sleep_mutex_);
    calls = std::min(calls, sleeping_.load() - calls_);
    calls_ += std::max(calls, 0);
  }
  for (; calls > 0; --calls) wake_.notify_one();
}

// Either this sees an offer, or the offer's wake_for() sees that this worker sleeps.
void WorkerPool::sleep() {
  searching_.fetch_sub(1);
  {
    std::unique_lock lock(sleep_mutex_);
    sleeping_.fetch_add(1);
    if (!on_offer()) {
      wake_.wait(lock, [&] { return calls_ > 0; });
      --calls_;
    }
    sleeping_.fetch_sub(1);
    calls_ = std::min(calls_, sleeping_.load());
  }
  searching_.fetch_add(1);
}

void WorkerPool::work() {
  searching_.fetch_add(1);
  for (;;)
    if (!spin_until([&] { return help_somewhere(); }, kSearch)) sleep();
}

}  // namespace densecrf
