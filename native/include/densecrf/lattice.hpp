// The permutohedral lattice (Adams, Baek and Davis 2010): geometry and incidence, no values.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "densecrf/memory.hpp"
#include "densecrf/parallel.hpp"

namespace densecrf {

inline constexpr int kMaxDimension = 64;

// Which vertices touch which. Independent of the barycentric weights, so that rescaled copies of a
// lattice share it.
struct Topology {
  // Some of the vertices, as intervals that do not cross the borders of tiles.
  struct Runs {
    std::vector<std::pair<std::int32_t, std::int32_t>> intervals;
    std::vector<std::int32_t> first;  // by tile, and one more: where its intervals begin
  };

  Topology() = default;
  Topology(const Topology&) = delete;
  Topology& operator=(const Topology&) = delete;
  ~Topology() { delete lines_.load(); }

  std::int64_t pixels = 0;
  int dimension = 0;
  std::int32_t vertices = 0;

  Buffer<std::int32_t> corner;       // (d+1, pixels): vertex of each corner of a pixel's simplex
  Buffer<std::uint8_t> rank;         // (d+1, pixels): order of the axes inside the simplex
  Buffer<std::int64_t> row_begin;    // (vertices+1): where a vertex's entries begin
  Buffer<std::int32_t> entry_pixel;  // (d+1)·pixels: the pixels that touch a vertex, ascending
  Buffer<std::int32_t> neighbour;    // (d+1, vertices+1, 2): along +axis and -axis; number
                                     // `vertices` is none, as are its neighbours

  // What a sweep over tiles of kTile vertices or pixels needs: the last tile that holds a
  // neighbour, along one axis, of a vertex up to and including this tile; the last tile that holds
  // a corner of a pixel up to and including a tile of pixels.
  static constexpr std::int64_t kTile = 64;
  Buffer<std::int32_t> reach;        // (d+1, tiles of vertices)
  Buffer<std::int32_t> pixel_reach;  // tiles of pixels
  Buffer<std::int32_t> last_pixel;   // tiles of vertices: the last tile of pixels that touches
                                     // a vertex up to and including it

  // Where the blurs of both orders agree, all vertices on every path being there, the reversed one
  // need not be computed: what is left for its steps, or nothing where it is wanted everywhere.
  std::vector<Runs> reversed;

  // Computes what the filters need beyond neighbours and incidence: the reach and `reversed`.
  void prepare(Team& team);

  // The vertices that have neighbours along one axis, line after line, with the number `vertices`
  // before, between and behind the lines (begin[length] is the last of these). Made when first
  // asked for.
  struct Lines {
    const std::int32_t* begin;
    std::int64_t length;
    // The next place between lines.
    std::int64_t border(std::int64_t at, std::int32_t vertices) const {
      while (begin[at] != vertices) ++at;
      return at;
    }
  };
  Lines lines_of(int j) const;

  mutable BufferCache row_buffers, pixel_buffers;  // for the workspaces of the filters

  static constexpr std::int64_t tiles_of(std::int64_t count) { return (count + kTile - 1) / kTile; }
  const std::int32_t* reach_of(int j) const { return reach.data() + j * tiles_of(vertices); }
  const std::int32_t* axis(int j) const {
    return neighbour.data() + static_cast<std::int64_t>(j) * (vertices + std::int64_t{1}) * 2;
  }
  std::int32_t* axis(int j) { return const_cast<std::int32_t*>(std::as_const(*this).axis(j)); }
  // Makes room for neighbours; none so far.
  void reset_neighbours();

 private:
  void measure_reach(Team& team);
  void find_ragged(Team& team);
  using AllLines = std::vector<std::vector<std::int32_t>>;  // by axis
  AllLines made_lines() const;

  // Without a lock, like BufferCache: of two threads that make them, one's are kept.
  mutable std::atomic<const AllLines*> lines_{nullptr};
};

// A lattice as plain pointers, for the inner loops.
struct LatticeView {
  std::int64_t pixels;
  int dimension;
  std::int32_t vertices;
  const std::int32_t* corner;
  const float* corner_weight;
  const std::int64_t* row_begin;
  const std::int32_t* entry_pixel;
  const float* entry_weight;
};

struct Lattice {
  std::shared_ptr<const Topology> topology;
  Buffer<float> corner_weight;  // (d+1, pixels): barycentric weights
  Buffer<float> entry_weight;   // in the order of entry_pixel: the same numbers, unless
  bool same_weights = true;     // rows and columns were weighed differently

  std::int64_t pixels() const { return topology->pixels; }
  int dimension() const { return topology->dimension; }
  std::int32_t vertices() const { return topology->vertices; }
  // Conventional scale of the filter: the blur returns (1 + 2^-d) of a lone vertex to itself.
  float scale() const;
  LatticeView view() const;

  // The same lattice with weights: the filter's matrix becomes rows_a k_ab columns_b.
  Lattice scaled(const float* columns, const float* rows, Team& team) const;
  void weigh(const float* columns, const float* rows, Team& team);  // this one itself

  // The lattice of some pixels alone (ascending, distinct): the filter's matrix becomes the
  // submatrix of these rows and columns, exactly, and costs what lies between these pixels costs.
  Lattice restricted(const std::int32_t* pixels, std::int64_t count, Team& team) const;

  // The diagonal k_aa of the filter's matrix, exactly, for the symmetric operator.
  void diagonal(double* out, Team& team) const;

  std::int64_t bytes() const;
};

// In which precision pixels are located. Other software does it in single: a pixel that lies on the
// border of two simplices then falls to the same side as there.
enum class Arithmetic { kDouble, kSingle };

// Builds the lattice of n features of dimension d, row-major, already divided by their standard
// deviations. Throws std::out_of_range where a feature is too far from the origin for the keys.
template <class Real>
Lattice build_lattice(const Real* features, std::int64_t n, int d, Team& team,
                      Arithmetic arithmetic = Arithmetic::kDouble);

}  // namespace densecrf
