#include "densecrf/lattice.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "simplex.hpp"
#include "vertex_table.hpp"

namespace densecrf {

namespace {

constexpr std::int64_t kChunk = 8192;  // pixels whose keys are made unique together

// Corners, ranks and weights of the pixels of one chunk; corners number the chunk's own keys.
template <class Vertices, class Scalar, int D, class Real>
typename Vertices::Keys locate_chunk(const Real* features, std::int64_t begin, std::int64_t end,
                                     Topology& topology, float* weights) {
  const int d = D > 0 ? D : topology.dimension;
  const std::int64_t n = topology.pixels;
  Vertices vertices(d, static_cast<std::size_t>(end - begin) / 8);
  Simplices<Scalar> simplices(d);
  std::int32_t corner[kMaxDimension + 1];
  for (std::int64_t first = begin; first < end; first += simplices.kBlock) {
    const auto count = static_cast<int>(std::min<std::int64_t>(simplices.kBlock, end - first));
    simplices.locate(features + first * d, count);
    for (int p = 0; p < count; ++p) {
      vertices.number(simplices[p], corner);
      for (int k = 0; k <= d; ++k) topology.corner[k * n + first + p] = corner[k];
    }
    for (int k = 0; k <= d; ++k)
      for (int p = 0; p < count; ++p) {
        weights[k * n + first + p] = simplices[p].weight(k);
        topology.rank[k * n + first + p] = static_cast<std::uint8_t>(simplices[p].rank(k));
      }
  }
  return vertices.keys();
}

template <class Vertices>
void link_neighbours(Topology& topology, const Vertices& table, Team& team) {
  topology.reset_neighbours();
  team.run(topology.vertices, 4096, [&](std::int64_t begin, std::int64_t end, int) {
    for (int j = 0; j <= topology.dimension; ++j) {
      std::int32_t* axis = topology.axis(j);
      for (std::int64_t v = begin; v < end; ++v) {
        const std::int32_t next = table.next(static_cast<std::int32_t>(v), j);
        axis[2 * v] = next;
        if (next != topology.vertices)
          axis[2 * static_cast<std::int64_t>(next) + 1] = static_cast<std::int32_t>(v);
      }
    }
  });
}

// Vertices, numbered in order of first appearance, their neighbours, and where the pixels lie among
// them. Chunks number their own vertices first; `numbers` are those that they have among all.
template <class Vertices, class Scalar, int D, class Real>
void locate_with(const Real* features, Topology& topology, float* weights, Team& team) {
  const std::int64_t n = topology.pixels;
  const int d = topology.dimension;
  const auto chunks = static_cast<std::size_t>((n + kChunk - 1) / kChunk);
  std::vector<typename Vertices::Keys> keys(chunks);
  team.run(n, kChunk, [&](std::int64_t begin, std::int64_t end, int) {
    keys[static_cast<std::size_t>(begin / kChunk)] =
        locate_chunk<Vertices, Scalar, D>(features, begin, end, topology, weights);
  });
  Vertices table(d, static_cast<std::size_t>(n / 8));
  std::vector<std::vector<std::int32_t>> numbers(chunks);
  for (std::size_t c = 0; c < chunks; ++c)
    team.run(1, 1, [&](std::int64_t, std::int64_t, int) {
      numbers[c] = table.number(keys[c]);
      typename Vertices::Keys().swap(keys[c]);
    });
  topology.vertices = table.size();
  team.run(n, kChunk, [&](std::int64_t begin, std::int64_t end, int) {
    const auto& number = numbers[static_cast<std::size_t>(begin / kChunk)];
    for (int k = 0; k <= d; ++k)
      for (std::int64_t a = begin; a < end; ++a) {
        std::int32_t& corner = topology.corner[k * n + a];
        corner = number[static_cast<std::size_t>(corner)];
      }
  });
  link_neighbours(topology, table, team);
}

template <class Scalar, int D, class Real>
void locate_pixels(const Real* features, Topology& topology, float* weights, Team& team) {
  auto* locate = locate_with<AnyVertices<D>, Scalar, D, Real>;
  if constexpr (D > 0) {
    double largest[D] = {};
    for (std::int64_t a = 0; a < topology.pixels; ++a)
      for (int i = 0; i < D; ++i)
        largest[i] = std::max(largest[i], std::fabs(static_cast<double>(features[a * D + i])));
    if (PackedVertices<D>::hold(Simplices<double>(D).largest_coordinate(largest)))
      locate = locate_with<PackedVertices<D>, Scalar, D, Real>;
  }
  locate(features, topology, weights, team);
}

template <class Scalar, class Real>
auto locator(int d) {
  return d == 2   ? locate_pixels<Scalar, 2, Real>
         : d == 3 ? locate_pixels<Scalar, 3, Real>
         : d == 5 ? locate_pixels<Scalar, 5, Real>
                  : locate_pixels<Scalar, 0, Real>;
}

// Entries of each vertex, pixels ascending: a splat gathers them, so threads never collide.
//
// Each thread takes a part of the pixels: it counts their entries by vertex, learns from the counts
// of the parts before where its own belong, and puts them there. The outcome does not depend on how
// many parts there are. Place counts entries.
template <class Place>
void transpose_incidence(Topology& topology, const Buffer<float>& corner_weight,
                         Buffer<float>& entry_weight, Team& team) {
  const std::int64_t n = topology.pixels, vertices = topology.vertices;
  const std::int64_t entries = n * (topology.dimension + 1);
  topology.row_begin.reset(vertices + 1);
  topology.entry_pixel.reset(entries);
  entry_weight.reset(entries);
  const std::int64_t parts = std::min<std::int64_t>(team.size(), 1 + n / kChunk);
  std::vector<std::vector<Place>> cursor(static_cast<std::size_t>(parts));
  const auto each_entry = [&](std::int64_t part, int thread, auto&& body) {
    Place* at = cursor[static_cast<std::size_t>(part)].data();
    const std::int64_t stop = n * (part + 1) / parts;
    for (std::int64_t a = n * part / parts; a < stop; ++a) {
      if (a % kChunk == 0) team.checkpoint(thread);
      for (int k = 0; k <= topology.dimension; ++k)
        body(a, k * n + a, at[topology.corner[k * n + a]]);
    }
  };
  team.run(parts, 1, [&](std::int64_t part, std::int64_t, int thread) {
    cursor[static_cast<std::size_t>(part)].assign(static_cast<std::size_t>(vertices), 0);
    each_entry(part, thread, [](std::int64_t, std::int64_t, Place& count) { ++count; });
  });
  std::vector<std::int64_t> before(static_cast<std::size_t>(1 + (vertices + kChunk - 1) / kChunk),
                                   0);
  team.run(vertices, kChunk, [&](std::int64_t begin, std::int64_t end, int) {
    std::int64_t& sum = before[static_cast<std::size_t>(1 + begin / kChunk)];
    for (const auto& part : cursor)
      sum = std::accumulate(part.begin() + begin, part.begin() + end, sum);
  });
  std::partial_sum(before.begin(), before.end(), before.begin());
  team.run(vertices, kChunk, [&](std::int64_t begin, std::int64_t end, int) {
    std::int64_t at = before[static_cast<std::size_t>(begin / kChunk)];
    for (std::int64_t v = begin; v < end; ++v) {
      topology.row_begin[v] = at;
      for (auto& part : cursor) {
        const Place count = part[static_cast<std::size_t>(v)];
        part[static_cast<std::size_t>(v)] = static_cast<Place>(at);
        at += count;
      }
    }
  });
  topology.row_begin[vertices] = before.back();
  team.run(parts, 1, [&](std::int64_t part, std::int64_t, int thread) {
    each_entry(part, thread, [&](std::int64_t a, std::int64_t slot, Place& place) {
      topology.entry_pixel[place] = static_cast<std::int32_t>(a);
      entry_weight[place] = corner_weight[slot];
      ++place;
    });
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
  locate(features, *topology, lattice.corner_weight.data(), team);
  const auto transpose = n * (d + 1) <= UINT32_MAX ? transpose_incidence<std::uint32_t>
                                                   : transpose_incidence<std::uint64_t>;
  transpose(*topology, lattice.corner_weight, lattice.entry_weight, team);
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

namespace {

// to = from, times what each pixel is worth.
void scale_weights(const Topology& t, const Lattice& from, const float* columns, const float* rows,
                   Lattice& to, Team& team) {
  const std::int64_t n = t.pixels;
  const int corners = t.dimension + 1;
  to.same_weights = from.same_weights && columns == rows;
  team.run(n, kChunk, [&](std::int64_t begin, std::int64_t end, int) {
    for (int k = 0; k < corners; ++k)
      for (std::int64_t a = begin; a < end; ++a)
        to.corner_weight[k * n + a] = from.corner_weight[k * n + a] * rows[a];
  });
  team.run(n * corners, kChunk, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t e = begin; e < end; ++e)
      to.entry_weight[e] = from.entry_weight[e] * columns[t.entry_pixel[e]];
  });
}

}  // namespace

Lattice Lattice::scaled(const float* columns, const float* rows, Team& team) const {
  Lattice out;
  out.topology = topology;
  out.corner_weight.reset(corner_weight.size());
  out.entry_weight.reset(entry_weight.size());
  scale_weights(*topology, *this, columns, rows, out, team);
  return out;
}

void Lattice::weigh(const float* columns, const float* rows, Team& team) {
  scale_weights(*topology, *this, columns, rows, *this, team);
}

std::int64_t Lattice::bytes() const {
  const Topology& t = *topology;
  return 4 * (t.corner.size() + t.entry_pixel.size() + t.neighbour.size() + corner_weight.size() +
              entry_weight.size() + t.reach.size() + t.pixel_reach.size() + t.last_pixel.size()) +
         8 * t.row_begin.size() + t.rank.size();
}

}  // namespace densecrf
