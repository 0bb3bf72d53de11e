#include <vector>

#include "densecrf/lattice.hpp"

namespace densecrf {

namespace {

constexpr std::int64_t kGrain = 8192;

using Ids = std::vector<std::int32_t>;

// After how many blurs, along the axes in one order, something at touched vertices arrives.
class Arrival {
 public:
  Arrival(const Topology& topology, const Ids& touched, bool reversed)
      : topology_(topology),
        reversed_(reversed),
        never_(static_cast<std::uint8_t>(topology.dimension + 2)),
        stage_(static_cast<std::size_t>(topology.vertices) + 1, never_),
        reached_(touched) {
    for (const std::int32_t v : touched) stage_[static_cast<std::size_t>(v)] = 0;
    stage_[static_cast<std::size_t>(topology.vertices)] = 0;  // no neighbour: nowhere to go
  }

  // Blurs along the next axis, passing vertices by that are not `useful`.
  template <typename Useful>
  void blur(Useful useful) {
    const int d = topology_.dimension;
    const std::int32_t* axis = topology_.axis(reversed_ ? d - blurs_ : blurs_);
    const auto stage = static_cast<std::uint8_t>(++blurs_);
    const std::size_t before = reached_.size();
    for (std::size_t k = 0; k < before; ++k)
      for (int side = 0; side < 2; ++side) {
        const std::int32_t next = axis[2 * static_cast<std::int64_t>(reached_[k]) + side];
        if (after(next) != never_ || !useful(next)) continue;
        stage_[static_cast<std::size_t>(next)] = stage;
        reached_.push_back(next);
      }
  }

  int after(std::int32_t v) const { return stage_[static_cast<std::size_t>(v)]; }

 private:
  const Topology& topology_;
  bool reversed_;
  int blurs_ = 0;
  int never_;
  std::vector<std::uint8_t> stage_;
  Ids reached_;
};

Ids touched_by(const Topology& topology, const std::int32_t* pixels, std::int64_t count) {
  std::vector<bool> seen(static_cast<std::size_t>(topology.vertices), false);
  Ids touched;
  for (int k = 0; k <= topology.dimension; ++k) {
    const std::int32_t* corner = topology.corner.data() + k * topology.pixels;
    for (std::int64_t s = 0; s < count; ++s) {
      const std::int32_t v = corner[pixels[s]];
      if (seen[static_cast<std::size_t>(v)]) continue;
      seen[static_cast<std::size_t>(v)] = true;
      touched.push_back(v);
    }
  }
  return touched;
}

// The vertices on some path of the blurs from one touched vertex to another, ascending. A vertex is
// on a path of the axes 0 .. d when it is reached by the first j of them and the last d+1-j lead
// back, for some j. The paths of the reversed order are the same, walked backwards. Beyond half of
// the axes, a way goes on only to where the other one has been in time.
Ids between(const Topology& topology, const Ids& touched) {
  const int axes = topology.dimension + 1, half = (axes + 1) / 2;
  Arrival there(topology, touched, false), back(topology, touched, true);
  for (int i = 1; i <= half; ++i) {
    there.blur([](std::int32_t) { return true; });
    back.blur([](std::int32_t) { return true; });
  }
  for (int i = half + 1; i <= axes; ++i) {
    there.blur([&](std::int32_t v) { return back.after(v) <= axes - i; });
    back.blur([&](std::int32_t v) { return there.after(v) <= axes - i; });
  }
  Ids kept;
  for (std::int32_t v = 0; v < topology.vertices; ++v)
    if (there.after(v) + back.after(v) <= axes) kept.push_back(v);
  return kept;
}

// The inverse of a list of ids; `absent` elsewhere.
Ids inverse(const std::int32_t* ids, std::int64_t count, std::int64_t size, std::int32_t absent) {
  Ids map(static_cast<std::size_t>(size), absent);
  for (std::int64_t i = 0; i < count; ++i)
    map[static_cast<std::size_t>(ids[i])] = static_cast<std::int32_t>(i);
  return map;
}

void copy_corners(const Lattice& whole, const std::int32_t* pixels, const Ids& number,
                  Topology& topology, Lattice& out, Team& team) {
  const Topology& from = *whole.topology;
  const std::int64_t n = from.pixels, count = topology.pixels;
  const int corners = topology.dimension + 1;
  topology.corner.reset(count * corners);
  topology.rank.reset(count * corners);
  out.corner_weight.reset(count * corners);
  team.run(count, kGrain, [&](std::int64_t begin, std::int64_t end, int) {
    for (int k = 0; k < corners; ++k)
      for (std::int64_t s = begin; s < end; ++s) {
        const std::int64_t at = k * n + pixels[s];
        topology.corner[k * count + s] = number[static_cast<std::size_t>(from.corner[at])];
        topology.rank[k * count + s] = from.rank[at];
        out.corner_weight[k * count + s] = whole.corner_weight[at];
      }
  });
}

void copy_neighbours(const Topology& from, const Ids& kept, const Ids& number, Topology& topology,
                     Team& team) {
  const std::int64_t vertices = topology.vertices;
  topology.reset_neighbours();
  team.run(vertices, kGrain, [&](std::int64_t begin, std::int64_t end, int) {
    for (int j = 0; j <= topology.dimension; ++j) {
      const std::int32_t* old_axis = from.axis(j);
      std::int32_t* axis = topology.axis(j);
      for (std::int64_t v = begin; v < end; ++v)
        for (int side = 0; side < 2; ++side) {
          const std::int32_t next =
              old_axis[2 * static_cast<std::int64_t>(kept[static_cast<std::size_t>(v)]) + side];
          axis[2 * v + side] =
              next == from.vertices ? topology.vertices : number[static_cast<std::size_t>(next)];
        }
    }
  });
}

// The entries of the kept vertices that belong to kept pixels, in their old order.
void copy_entries(const Lattice& whole, const Ids& kept, const Ids& pixel_number,
                  Topology& topology, Lattice& out) {
  const Topology& from = *whole.topology;
  const std::int64_t entries = topology.pixels * (topology.dimension + 1);
  topology.row_begin.reset(static_cast<std::int64_t>(topology.vertices) + 1);
  topology.entry_pixel.reset(entries);
  out.entry_weight.reset(entries);
  std::int64_t at = 0;
  for (std::int32_t v = 0; v < topology.vertices; ++v) {
    topology.row_begin[v] = at;
    const std::int32_t old = kept[static_cast<std::size_t>(v)];
    for (std::int64_t e = from.row_begin[old]; e < from.row_begin[old + 1]; ++e) {
      const std::int32_t s = pixel_number[static_cast<std::size_t>(from.entry_pixel[e])];
      if (s < 0) continue;
      topology.entry_pixel[at] = s;
      out.entry_weight[at] = whole.entry_weight[e];
      ++at;
    }
  }
  topology.row_begin[topology.vertices] = at;
}

}  // namespace

// Exact: what a blur passes to a vertex that is left out never comes back to a pixel of the set.
Lattice Lattice::restricted(const std::int32_t* pixels, std::int64_t count, Team& team) const {
  auto part = std::make_shared<Topology>();
  Lattice out;
  out.same_weights = same_weights;
  Ids kept;
  team.run(1, 1, [&](std::int64_t, std::int64_t, int) {
    kept = between(*topology, touched_by(*topology, pixels, count));
  });
  part->pixels = count;
  part->dimension = dimension();
  part->vertices = static_cast<std::int32_t>(kept.size());
  const Ids number = inverse(kept.data(), part->vertices, vertices(), part->vertices);
  copy_corners(*this, pixels, number, *part, out, team);
  copy_neighbours(*topology, kept, number, *part, team);
  team.run(1, 1, [&](std::int64_t, std::int64_t, int) {
    copy_entries(*this, kept, inverse(pixels, count, this->pixels(), -1), *part, out);
  });
  part->prepare(team);
  out.topology = std::move(part);
  return out;
}

}  // namespace densecrf
