// What a lattice's neighbours imply for the filters: how far stages must be ahead of each other,
// and where the order of the blurs matters.
#include <algorithm>

#include "densecrf/lattice.hpp"

namespace densecrf {

namespace {

constexpr std::int64_t kGrain = 8192;

using Flags = std::vector<std::uint8_t>;

// For each vertex, whether all the paths exist along which the blurs of this order of axes reach
// it: both neighbours along the last axis, and from those and itself on along the others.
Flags complete(const Topology& t, bool reversed, Team& team) {
  Flags before(static_cast<std::size_t>(t.vertices), 1), after(before.size());
  for (int i = 0; i <= t.dimension; ++i) {
    const std::int32_t* axis = t.axis(reversed ? t.dimension - i : i);
    team.run(t.vertices, kGrain, [&](std::int64_t begin, std::int64_t end, int) {
      const auto from = [&](std::int32_t v) {
        return v != t.vertices && before[static_cast<std::size_t>(v)];
      };
      for (std::int64_t v = begin; v < end; ++v)
        after[v] = before[v] && from(axis[2 * v]) && from(axis[2 * v + 1]);
    });
    before.swap(after);
  }
  return before;
}

Topology::Runs runs_of(const Flags& wanted) {
  Topology::Runs runs;
  const auto count = static_cast<std::int64_t>(wanted.size());
  for (std::int64_t tile = 0; tile < count; tile += Topology::kTile) {
    runs.first.push_back(static_cast<std::int32_t>(runs.intervals.size()));
    const std::int64_t stop = std::min(count, tile + Topology::kTile);
    for (std::int64_t v = tile; v < stop; ++v) {
      if (!wanted[v]) continue;
      const std::int64_t begin = v;
      while (v < stop && wanted[v]) ++v;
      runs.intervals.emplace_back(begin, v);
    }
  }
  runs.first.push_back(static_cast<std::int32_t>(runs.intervals.size()));
  return runs;
}

}  // namespace

void Topology::reset_neighbours() {
  neighbour.reset((dimension + 1) * (vertices + std::int64_t{1}) * 2);
  std::fill(neighbour.data(), neighbour.data() + neighbour.size(), vertices);
}

void Topology::prepare(Team& team) {
  measure_reach(team);
  find_ragged(team);
}

void Topology::measure_reach(Team& team) {
  const std::int64_t tiles = tiles_of(vertices), pixel_tiles = tiles_of(pixels);
  reach.reset((dimension + 1) * tiles);
  pixel_reach.reset(pixel_tiles);
  last_pixel.reset(tiles);
  const auto raise = [](std::int32_t& last, std::int64_t vertex) {
    last = std::max(last, static_cast<std::int32_t>(vertex / kTile));
  };
  team.run((dimension + 1) * tiles, 256, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t tile = i % tiles;
      const std::int32_t* neighbours = axis(static_cast<int>(i / tiles));
      const std::int64_t stop = std::min<std::int64_t>(vertices, (tile + 1) * kTile);
      auto last = static_cast<std::int32_t>(tile * kTile);
      for (std::int64_t v = 2 * tile * kTile; v < 2 * stop; ++v)
        last = std::max(last, neighbours[v] == vertices ? 0 : neighbours[v]);
      reach[i] = static_cast<std::int32_t>(last / kTile);
    }
  });
  team.run(pixel_tiles, 256, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t tile = begin; tile < end; ++tile) {
      const std::int64_t stop = std::min(pixels, (tile + 1) * kTile);
      std::int32_t last = 0;
      for (int k = 0; k <= dimension; ++k)
        for (std::int64_t a = tile * kTile; a < stop; ++a)
          last = std::max(last, corner[k * pixels + a]);
      pixel_reach[tile] = static_cast<std::int32_t>(last / kTile);
    }
  });
  for (std::int64_t tile = 0; tile < tiles; ++tile) {
    last_pixel[tile] = tile > 0 ? last_pixel[tile - 1] : 0;
    const std::int64_t stop = std::min<std::int64_t>(vertices, (tile + 1) * kTile);
    for (std::int64_t v = tile * kTile; v < stop; ++v)
      if (row_begin[v + 1] > row_begin[v])
        raise(last_pixel[tile], entry_pixel[row_begin[v + 1] - 1]);
  }
  for (std::int64_t i = 1; i < reach.size(); ++i)
    if (i % tiles != 0) reach[i] = std::max(reach[i], reach[i - 1]);
  for (std::int64_t i = 1; i < pixel_tiles; ++i)
    pixel_reach[i] = std::max(pixel_reach[i], pixel_reach[i - 1]);
}

void Topology::find_ragged(Team& team) {
  const Flags forward = complete(*this, false, team);
  const auto most = std::count(forward.begin(), forward.end(), 1);
  if (2 * most < vertices) return;  // the reversed order is wanted nearly everywhere
  const Flags backward = complete(*this, true, team);
  Flags wanted(forward.size());
  for (std::size_t v = 0; v < wanted.size(); ++v) wanted[v] = !(forward[v] && backward[v]);
  reversed.resize(static_cast<std::size_t>(dimension) + 1);
  for (int j = 0; j <= dimension; ++j) {  // from the last step of the reversed order to its first
    reversed[static_cast<std::size_t>(dimension - j)] = runs_of(wanted);
    Flags also = wanted;
    const std::int32_t* neighbours = axis(j);
    for (std::int64_t v = 0; v < vertices; ++v)
      if (wanted[v])
        for (const std::int32_t next : {neighbours[2 * v], neighbours[2 * v + 1]})
          if (next != vertices) also[next] = 1;
    wanted.swap(also);
  }
}

Topology::Lines Topology::lines_of(int j) const {
  const AllLines* held = lines_.load(std::memory_order_acquire);
  if (!held) {
    auto made = std::make_unique<AllLines>(made_lines());
    if (lines_.compare_exchange_strong(held, made.get(), std::memory_order_acq_rel))
      held = made.release();
  }
  const auto& own = (*held)[static_cast<std::size_t>(j)];
  return {own.data(), static_cast<std::int64_t>(own.size()) - 1};
}

Topology::AllLines Topology::made_lines() const {
  AllLines all(static_cast<std::size_t>(dimension) + 1, std::vector<std::int32_t>{vertices});
  for (int j = 0; j <= dimension; ++j) {
    auto& lines = all[static_cast<std::size_t>(j)];
    const auto next = [own = axis(j)](std::int64_t v) { return own[2 * v]; };
    const auto previous = [own = axis(j)](std::int64_t v) { return own[2 * v + 1]; };
    for (std::int32_t first = 0; first < vertices; ++first) {
      if (previous(first) != vertices || next(first) == vertices) continue;
      for (std::int32_t v = first; v != vertices; v = next(v)) lines.push_back(v);
      lines.push_back(vertices);
    }
  }
  return all;
}

}  // namespace densecrf
