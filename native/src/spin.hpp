// Waiting for what is about to happen.
#pragma once

#include <chrono>
#include <thread>

namespace densecrf {

// Calls happened() until it holds, for so long at most; returns whether it held. At first without
// giving the processor away: runs follow each other closely, and waking a thread takes longer than
// most of them. Then behind any other thread that is ready.
template <class Condition>
bool spin_until(const Condition& happened, std::chrono::microseconds most) {
  using Clock = std::chrono::steady_clock;
  constexpr int kPauses = 16;  // between two looks at the clock
  constexpr std::chrono::microseconds kAlone(20);
  const auto began = Clock::now();
  for (auto waited = Clock::duration::zero(); waited < most; waited = Clock::now() - began) {
    for (int pause = 0; pause < kPauses; ++pause) {
      if (happened()) return true;
#if defined(__GNUC__) && (defined(__x86_64__) || defined(__i386__))
      __builtin_ia32_pause();
#elif defined(__GNUC__) && defined(__aarch64__)
      __asm__ __volatile__("yield");
#endif
    }
    if (waited > kAlone) std::this_thread::yield();
  }
  return false;
}

}  // namespace densecrf
