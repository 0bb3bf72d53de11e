// The worker threads of the process, which help all teams.
//
// A team offers each of its runs at a desk of its own; workers without work take seats there. The
// calling thread works all the same, and closes the offer when nothing is left: no run waits for a
// worker that sleeps or has no processor, only for those in the middle of a chunk.
//
// Workers are created when they are first of use and never end: asleep, they hold nothing but
// memory that is never freed, and do not keep the process from ending. A child made by fork() has
// none of them, and a crew of its own.
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

// What a team offers: called with the worker's seat, from 1 to the number of seats.
class Offered {
 public:
  virtual void help(int seat) noexcept = 0;

 protected:
  ~Offered() = default;
};

// Where a team offers its runs. Workers take seats and leave; the rest is the calling thread's.
class alignas(64) Desk {
 public:
  // Whether nobody is seated.
  bool empty() const { return state_.load() < kWorker; }
  // Sleeps until nobody is seated, or for so long.
  void wait_until_empty(std::chrono::milliseconds most);

 private:
  friend class Crew;
  static constexpr std::uint64_t kWorker = std::uint64_t{1} << 32, kSeats = kWorker - 1;

  int take_seat();  // its number; 0: none is free
  int free_seats() const { return static_cast<int>(state_.load() & kSeats); }
  void leave();

  std::atomic<std::uint64_t> state_{0};  // workers seated, times kWorker, plus the free seats
  Offered* offered_ = nullptr;           // unchanged while a seat is free or taken
  std::atomic<bool> awaited_{false};
  std::mutex mutex_;
  std::condition_variable left_;
};

class Crew {
 public:
  static Crew& of_process();

  // Counts a team among those at work; returns how many there are with it.
  int enter() { return 1 + teams_.fetch_add(1, std::memory_order_relaxed); }
  void exit() { teams_.fetch_sub(1, std::memory_order_relaxed); }

  // Null where all desks are taken.
  Desk* take_desk();
  void give_back(Desk* desk) { taken_.fetch_and(~bit(*desk), std::memory_order_release); }

  // Sees to it that there are so many workers, as far as the system allows, on these processors.
  void muster(int workers, const Processors& processors);

  // Offers seats at an empty desk to the workers. Some are woken if need be, who wake the others.
  void offer(Desk& desk, Offered& offered, int seats);
  // Ends the offer: no worker takes a seat any more.
  void close(Desk& desk);

 private:
  static constexpr int kDesks = 64;

  std::uint64_t bit(const Desk& desk) const { return std::uint64_t{1} << (&desk - desks_.data()); }
  void work();
  bool help_somewhere();
  bool on_offer() const;
  void wake_for(const Desk& desk);
  void sleep();

  std::array<Desk, kDesks> desks_;
  alignas(64) std::atomic<std::uint64_t> open_{0};  // desks with an offer
  alignas(64) std::atomic<int> searching_{0};       // workers awake without a seat
  std::atomic<int> sleeping_{0};
  std::atomic<std::uint64_t> taken_{0};
  std::atomic<int> teams_{0};

  std::mutex sleep_mutex_;
  std::condition_variable wake_;
  int calls_ = 0;  // to sleepers, unanswered

  std::mutex muster_mutex_;
  Processors processors_;
#if defined(__linux__)
  std::vector<pthread_t> workers_;
#endif
  int count_ = 0;
};

}  // namespace densecrf
