#include "densecrf/lattice.hpp"

#include <cmath>
#include <vector>

#include "key_table.hpp"
#include "simplex.hpp"

namespace densecrf {

namespace {

constexpr std::int64_t kChunk = 8192;  // pixels whose keys are made unique together

// Corners, ranks and weights of the pixels of one chunk; corners number the chunk's own keys.
template <class Scalar, int D, class Real>
std::vector<std::int32_t> locate_chunk(const Real* features, std::int64_t begin, std::int64_t end,
                                       Topology& topology, float* weights) {
  const int d = topology.dimension;
  const std::int64_t n = topology.pixels;
  KeyTable table(d, static_cast<std::size_t>(end - begin));
  using Enclosing = Simplex<Scalar, D>;
  Enclosing alternating[2] = {Enclosing(d), Enclosing(d)};
  std::int32_t key[kMaxDimension];
  for (std::int64_t a = begin; a < end; ++a) {
    Enclosing& current = alternating[a & 1];
    current.locate(features + a * d);
    const bool repeated = a > begin && current.same_as(alternating[1 - (a & 1)]);
    for (int k = 0; k <= d; ++k) {
      std::int32_t& corner = topology.corner[k * n + a];
      if (repeated) {
        corner = topology.corner[k * n + a - 1];
      } else {
        current.key(k, key);
        corner = table.insert(key);
      }
      weights[k * n + a] = static_cast<float>(current.weight(k));
      topology.rank[k * n + a] = static_cast<std::uint8_t>(current.rank(k));
    }
  }
  return table.keys();
}

template <class Scalar, class Real>
auto locator(int d) {
  return d == 2   ? locate_chunk<Scalar, 2, Real>
         : d == 3 ? locate_chunk<Scalar, 3, Real>
         : d == 5 ? locate_chunk<Scalar, 5, Real>
                  : locate_chunk<Scalar, 0, Real>;
}

// Numbers all keys in order of first appearance; returns each chunk's map from its own numbers.
std::vector<std::vector<std::int32_t>> merge_keys(std::vector<std::vector<std::int32_t>>& chunks,
                                                  int d, KeyTable& table, Team& team) {
  std::vector<std::vector<std::int32_t>> maps(chunks.size());
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    team.run(1, 1, [&](std::int64_t, std::int64_t, int) {
      const std::size_t count = chunks[c].size() / d;
      maps[c].resize(count);
      for (std::size_t i = 0; i < count; ++i) maps[c][i] = table.insert(chunks[c].data() + i * d);
      std::vector<std::int32_t>().swap(chunks[c]);
    });
  }
  return maps;
}

void link_neighbours(Topology& topology, const KeyTable& table, Team& team) {
  const int d = topology.dimension;
  const std::int32_t vertices = topology.vertices;
  topology.reset_neighbours();
  team.run(static_cast<std::int64_t>(vertices), 4096,
           [&](std::int64_t begin, std::int64_t end, int) {
             std::int32_t key[kMaxDimension];
             for (std::int64_t v = begin; v < end; ++v) {
               for (int j = 0; j <= d; ++j) {
                 const std::int32_t* own = table.key(static_cast<std::size_t>(v));
                 for (int i = 0; i < d; ++i) key[i] = own[i] - 1;
                 if (j < d) key[j] += d + 1;
                 const std::int32_t next = table.find(key, vertices);
                 std::int32_t* axis = topology.axis(j);
                 axis[2 * v] = next;
                 if (next != vertices)
                   axis[2 * static_cast<std::int64_t>(next) + 1] = static_cast<std::int32_t>(v);
               }
             }
           });
}

// Entries of each vertex, pixels ascending: a splat gathers them, so threads never collide.
void transpose_incidence(Topology& topology, const Buffer<float>& corner_weight,
                         Buffer<float>& entry_weight, Team& team) {
  const std::int64_t n = topology.pixels;
  const std::int64_t entries = n * (topology.dimension + 1);
  topology.row_begin.reset(static_cast<std::int64_t>(topology.vertices) + 1);
  topology.entry_pixel.reset(entries);
  entry_weight.reset(entries);
  std::int64_t* begin = topology.row_begin.data();
  std::fill(begin, begin + topology.vertices + 1, 0);
  std::vector<std::int64_t> cursor(static_cast<std::size_t>(topology.vertices));
  const auto sequentially = [&](auto&& body) {
    for (std::int64_t at = 0; at < n; at += kChunk * 16)  // in steps, so that Ctrl-C is heard
      team.run(1, 1, [&](std::int64_t, std::int64_t, int) {
        for (std::int64_t a = at; a < std::min(n, at + kChunk * 16); ++a)
          for (int k = 0; k <= topology.dimension; ++k) body(a, k * n + a);
      });
  };
  sequentially([&](std::int64_t, std::int64_t slot) { ++begin[topology.corner[slot] + 1]; });
  for (std::int32_t v = 0; v < topology.vertices; ++v) {
    begin[v + 1] += begin[v];
    cursor[static_cast<std::size_t>(v)] = begin[v];
  }
  sequentially([&](std::int64_t a, std::int64_t slot) {
    const std::int64_t at = cursor[static_cast<std::size_t>(topology.corner[slot])]++;
    topology.entry_pixel[at] = static_cast<std::int32_t>(a);
    entry_weight[at] = corner_weight[slot];
  });
}

}  // namespace

template <class Real>
Lattice build_lattice(const Real* features, std::int64_t n, int d, Team& team,
                      Arithmetic arithmetic) {
  if (n > INT32_MAX) throw std::bad_alloc();
  auto topology = std::make_shared<Topology>();
  topology->pixels = n;
  topology->dimension = d;
  topology->corner.reset(n * (d + 1));
  topology->rank.reset(n * (d + 1));
  Lattice lattice;
  lattice.corner_weight.reset(n * (d + 1));

  const auto locate =
      arithmetic == Arithmetic::kDouble ? locator<double, Real>(d) : locator<float, Real>(d);
  std::vector<std::vector<std::int32_t>> chunks(
      static_cast<std::size_t>((n + kChunk - 1) / kChunk));
  team.run(n, kChunk, [&](std::int64_t begin, std::int64_t end, int) {
    chunks[static_cast<std::size_t>(begin / kChunk)] =
        locate(features, begin, end, *topology, lattice.corner_weight.data());
  });
  KeyTable table(d, static_cast<std::size_t>(n / 8));
  const auto maps = merge_keys(chunks, d, table, team);
  topology->vertices = static_cast<std::int32_t>(table.size());
  team.run(n, kChunk, [&](std::int64_t begin, std::int64_t end, int) {
    const auto& map = maps[static_cast<std::size_t>(begin / kChunk)];
    for (int k = 0; k <= d; ++k)
      for (std::int64_t a = begin; a < end; ++a) {
        std::int32_t& corner = topology->corner[k * n + a];
        corner = map[static_cast<std::size_t>(corner)];
      }
  });
  link_neighbours(*topology, table, team);
  transpose_incidence(*topology, lattice.corner_weight, lattice.entry_weight, team);
  topology->prepare(team);
  lattice.topology = std::move(topology);
  return lattice;
}

template Lattice build_lattice<float>(const float*, std::int64_t, int, Team&, Arithmetic);
template Lattice build_lattice<double>(const double*, std::int64_t, int, Team&, Arithmetic);

float Lattice::scale() const {
  return 1.0f / (1.0f + std::ldexp(1.0f, -dimension()));
}

LatticeView Lattice::view() const {
  const Topology& t = *topology;
  return {t.pixels,
          t.dimension,
          t.vertices,
          t.corner.data(),
          corner_weight.data(),
          t.row_begin.data(),
          t.entry_pixel.data(),
          entry_weight.data()};
}

Lattice Lattice::scaled(const float* columns, const float* rows, Team& team) const {
  Lattice out;
  out.topology = topology;
  const std::int64_t n = pixels();
  const int corners = dimension() + 1;
  out.corner_weight.reset(n * corners);
  out.entry_weight.reset(n * corners);
  team.run(n, kChunk, [&](std::int64_t begin, std::int64_t end, int) {
    for (int k = 0; k < corners; ++k)
      for (std::int64_t a = begin; a < end; ++a)
        out.corner_weight[k * n + a] = corner_weight[k * n + a] * rows[a];
  });
  team.run(n * corners, kChunk, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t e = begin; e < end; ++e)
      out.entry_weight[e] = entry_weight[e] * columns[topology->entry_pixel[e]];
  });
  return out;
}

std::int64_t Lattice::bytes() const {
  const Topology& t = *topology;
  return 4 * (t.corner.size() + t.entry_pixel.size() + t.neighbour.size() + corner_weight.size() +
              entry_weight.size() + t.reach.size() + t.pixel_reach.size() + t.last_pixel.size()) +
         8 * t.row_begin.size() + t.rank.size();
}

}  // namespace densecrf
