#include "crew.hpp"

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

std::atomic<Crew*> crew_of_process{nullptr};

#if defined(DENSECRF_POSIX)
// The parent's crew is left behind where it is: nothing in it can be relied on, locks least of all.
[[maybe_unused]] const int registered =
    pthread_atfork(nullptr, nullptr, [] { crew_of_process.store(nullptr); });

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

Crew& Crew::of_process() {
  Crew* held = crew_of_process.load(std::memory_order_acquire);
  if (held) return *held;
  Crew* made = new Crew;  // never freed: workers sleep on it until the process ends
  if (crew_of_process.compare_exchange_strong(held, made)) return *made;
  delete made;
  return *held;
}

Desk* Crew::take_desk() {
  std::uint64_t taken = taken_.load(std::memory_order_relaxed);
  while (~taken != 0) {
    const int first = std::countr_one(taken);
    if (taken_.compare_exchange_weak(taken, taken | std::uint64_t{1} << first,
                                     std::memory_order_acquire))
      return &desks_[static_cast<std::size_t>(first)];
  }
  return nullptr;
}

void Crew::muster(int workers, const Processors& processors) {
  std::lock_guard lock(muster_mutex_);
#if defined(__linux__)
  if (!(processors == processors_))
    for (const pthread_t worker : workers_)
      pthread_setaffinity_np(worker, sizeof processors.set, &processors.set);
#endif
  processors_ = processors;
  const NoSignals meanwhile;
  for (; count_ < workers; ++count_) {
    try {
      std::thread worker(&Crew::work, this);
#if defined(__linux__)
      workers_.push_back(worker.native_handle());
#endif
      worker.detach();
    } catch (const std::exception&) {
      return;  // the system refuses more threads: the results do not depend on their number
    }
  }
}

void Crew::offer(Desk& desk, Offered& offered, int seats) {
  desk.offered_ = &offered;
  desk.state_.store(static_cast<std::uint64_t>(seats));
  open_.fetch_or(bit(desk));
  wake_for(desk);
}

void Crew::close(Desk& desk) {
  open_.fetch_and(~bit(desk), std::memory_order_relaxed);
  desk.state_.fetch_and(~Desk::kSeats);
}

int Desk::take_seat() {
  std::uint64_t state = state_.load();
  while ((state & kSeats) != 0)
    if (state_.compare_exchange_weak(state, state + kWorker - 1))
      return static_cast<int>(state & kSeats);
  return 0;
}

void Desk::leave() {
  if (state_.fetch_sub(kWorker) >= 2 * kWorker || !awaited_.load()) return;
  std::lock_guard lock(mutex_);  // after the caller's last look at the desk, before its sleep
  left_.notify_one();
}

void Desk::wait_until_empty(std::chrono::milliseconds most) {
  std::unique_lock lock(mutex_);
  awaited_.store(true);
  left_.wait_for(lock, most, [&] { return empty(); });
  awaited_.store(false);
}

bool Crew::help_somewhere() {
  for (std::uint64_t open = open_.load(); open != 0; open &= open - 1) {
    Desk& desk = desks_[static_cast<std::size_t>(std::countr_zero(open))];
    const int seat = desk.take_seat();
    if (seat == 0) continue;
    searching_.fetch_sub(1);
    wake_for(desk);
    desk.offered_->help(seat);
    desk.leave();
    searching_.fetch_add(1);
    return true;
  }
  return false;
}

bool Crew::on_offer() const {
  for (std::uint64_t open = open_.load(); open != 0; open &= open - 1)
    if (desks_[static_cast<std::size_t>(std::countr_zero(open))].free_seats() > 0) return true;
  return false;
}

// A call takes the calling thread about a microsecond: it calls a few, and they call the others.
void Crew::wake_for(const Desk& desk) {
  constexpr int kMostCalls = 3;
  if (sleeping_.load() == 0 || searching_.load() >= desk.free_seats()) return;
  int calls = std::min(kMostCalls, desk.free_seats() - searching_.load());
  {
    std::lock_guard lock(sleep_mutex_);
    calls = std::min(calls, sleeping_.load() - calls_);
    calls_ += std::max(calls, 0);
  }
  for (; calls > 0; --calls) wake_.notify_one();
}

// Either this sees an offer, or the offer's wake_for() sees that this worker sleeps.
void Crew::sleep() {
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

void Crew::work() {
  searching_.fetch_add(1);
  for (;;)
    if (!spin_until([&] { return help_somewhere(); }, kSearch)) sleep();
}

}  // namespace densecrf
