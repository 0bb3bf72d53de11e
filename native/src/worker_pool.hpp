// The worker threads of the process, shared by all teams.
//
// A team publishes each of its runs in a slot of its own; idle workers join it there. The calling
// thread works on the run as well, and closes the slot when no chunk is left: a run never waits for
// a worker that sleeps or has no processor, only for those in the middle of a chunk.
//
// Workers are created when they are first of use and never end: asleep, they hold nothing but
// memory that is never freed, and do not keep the process from ending. A child made by fork() has
// none of them, and a pool of its own.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

#if defined(__linux__)
#include <pthread.h>
#endif

#include "thread_limits.hpp"

namespace densecrf {

// A run as workers see it: called with the worker's place, from 1 to the number of places.
class Offered {
 public:
  virtual void help(int place) noexcept = 0;

 protected:
  ~Offered() = default;
};

// Where a team publishes its runs. Workers take places and leave; all else is the calling thread's.
class alignas(64) Slot {
 public:
  // Whether no worker is on the run.
  bool empty() const { return state_.load() < kWorker; }
  // Sleeps until no worker is on the run, or for so long.
  void wait_until_empty(std::chrono::milliseconds most);

 private:
  friend class WorkerPool;
  static constexpr std::uint64_t kWorker = std::uint64_t{1} << 32, kPlaces = kWorker - 1;

  int take_place();  // its number; 0: none is free
  int free_places() const { return static_cast<int>(state_.load() & kPlaces); }
  void leave();

  std::atomic<std::uint64_t> state_{0};  // workers on the run, times kWorker, plus the free places
  Offered* offered_ = nullptr;           // unchanged while a place is free or taken
  std::atomic<bool> awaited_{false};
  std::mutex mutex_;
  std::condition_variable left_;
};

class WorkerPool {
 public:
  static WorkerPool& of_process();

  // Counts a team among those at work; returns how many there are with it.
  int enter() { return 1 + teams_.fetch_add(1, std::memory_order_relaxed); }
  void exit() { teams_.fetch_sub(1, std::memory_order_relaxed); }

  // Null where all slots are taken.
  Slot* take_slot();
  void give_back(Slot* slot) { taken_.fetch_and(~bit(*slot), std::memory_order_release); }

  // Creates workers up to this number, as far as the system allows, on these processors.
  void ensure(int workers, const Processors& processors);

  // Publishes a run in an empty slot. Some sleeping workers are woken if need be, who wake the
  // others.
  void offer(Slot& slot, Offered& offered, int places);
  // Closes the slot: no worker takes a place any more.
  void close(Slot& slot);

 private:
  static constexpr int kSlots = 64;

  std::uint64_t bit(const Slot& slot) const { return std::uint64_t{1} << (&slot - slots_.data()); }
  void work();
  bool help_somewhere();
  bool on_offer() const;
  void wake_for(const Slot& slot);
  void sleep();

  std::array<Slot, kSlots> slots_;
  alignas(64) std::atomic<std::uint64_t> open_{0};  // slots with an offer
  alignas(64) std::atomic<int> searching_{0};       // workers awake without a place
  std::atomic<int> sleeping_{0};
  std::atomic<std::uint64_t> taken_{0};
  std::atomic<int> teams_{0};

  std::mutex sleep_mutex_;
  std::condition_variable wake_;
  int calls_ = 0;  // to sleepers, unanswered

  std::mutex create_mutex_;
  Processors processors_;
#if defined(__linux__)
  std::vector<pthread_t> workers_;
#endif
  int count_ = 0;
};

}  // namespace densecrf
