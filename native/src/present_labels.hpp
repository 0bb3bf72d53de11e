// The labels that occur in a labelling.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <vector>

#include "densecrf/lattice.hpp"
#include "densecrf/memory.hpp"
#include "deterministic_sums.hpp"

namespace densecrf {

// The labels that any pixel has, ascending, and which of them each pixel has.
struct PresentLabels {
  std::vector<std::int64_t> labels;
  Buffer<std::int32_t> of_pixel;

  PresentLabels(const std::int64_t* given, std::int64_t n, int most, Team& team) : of_pixel(n) {
    const std::int64_t size = chunk_of(n), chunks = (n + size - 1) / size;
    std::vector<std::uint8_t> seen(static_cast<std::size_t>(chunks * most), 0);
    team.run(n, size, [&](std::int64_t begin, std::int64_t end, int) {
      std::uint8_t* own = seen.data() + begin / size * most;
      for (std::int64_t a = begin; a < end; ++a) {
        if (given[a] < 0 || given[a] >= most) throw std::out_of_range("labels: out of range");
        own[given[a]] = 1;
      }
    });
    std::vector<std::int32_t> number(static_cast<std::size_t>(most), -1);
    for (int i = 0; i < most; ++i)
      for (std::int64_t c = 0; c < chunks && number[i] < 0; ++c)
        if (seen[c * most + i]) {
          number[i] = count();
          labels.push_back(i);
        }
    team.run(n, size, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t a = begin; a < end; ++a) of_pixel[a] = number[given[a]];
    });
  }

  int count() const { return static_cast<int>(labels.size()); }
};

// Calls use(label, weight) for runs of a vertex's entries whose pixels have one label, as most
// neighbours have: four entries at a time, whose sums do not wait for each other.
template <class Real, class Use>
void for_each_run(const LatticeView& t, std::int64_t v, const std::int32_t* label, const Use& use) {
  const auto of = [&](std::int64_t e) { return label[t.entry_pixel[e]]; };
  const auto weight = [&](std::int64_t e) { return static_cast<Real>(t.entry_weight[e]); };
  const std::int64_t end = t.row_begin[v + 1];
  for (std::int64_t e = t.row_begin[v]; e < end;) {
    const std::int32_t own = of(e);
    Real sum = weight(e++);
    for (; e + 4 <= end && of(e) == own && of(e + 1) == own && of(e + 2) == own && of(e + 3) == own;
         e += 4)
      sum += (weight(e) + weight(e + 1)) + (weight(e + 2) + weight(e + 3));
    for (; e < end && of(e) == own; ++e) sum += weight(e);
    use(own, sum);
  }
}

}  // namespace densecrf
