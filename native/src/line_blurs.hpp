// Blurs along the lines of all axes, shared by the threads of a team.
#pragma once

#include <algorithm>
#include <cstdint>

#include "densecrf/lattice.hpp"
#include "densecrf/parallel.hpp"

namespace densecrf {

// Calls blur(task, lines, begin, end) for the lines of each axis in turn. Tasks blur rows of their
// own, those for which reversed(task) holds from the last axis to the first. Where there are fewer
// tasks than threads, the threads share each axis.
template <class Reversed, class Blur>
void blur_along_lines(const Topology& t, std::int64_t tasks, Team& team, const Reversed& reversed,
                      const Blur& blur) {
  constexpr std::int64_t kPiece = 512;  // vertices
  const auto lines_of = [&](std::int64_t task, int i) {
    return t.lines_of(reversed(task) ? t.dimension - i : i);
  };
  if (tasks >= team.size()) {
    team.run(tasks, 1, [&](std::int64_t task, std::int64_t, int thread) {
      for (int i = 0; i <= t.dimension; ++i) {
        team.checkpoint(thread);
        const Topology::Lines lines = lines_of(task, i);
        blur(task, lines, 0, lines.length);
      }
    });
    return;
  }
  for (int i = 0; i <= t.dimension; ++i) {
    std::int64_t longest = 0;
    for (std::int64_t task = 0; task < tasks; ++task)
      longest = std::max(longest, lines_of(task, i).length);
    const std::int64_t pieces = (longest + kPiece - 1) / kPiece;
    team.run(tasks * pieces, 1, [&](std::int64_t piece, std::int64_t, int) {
      const std::int64_t task = piece / pieces, first = piece % pieces * kPiece;
      const Topology::Lines lines = lines_of(task, i);
      if (first < lines.length)
        blur(task, lines, lines.border(first, t.vertices),
             lines.border(std::min(lines.length, first + kPiece), t.vertices));
    });
  }
}

}  // namespace densecrf
