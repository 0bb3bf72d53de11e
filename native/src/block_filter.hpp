// Splat, blurs and slice of one block of channels, in one sweep over the lattice or stage by stage.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "densecrf/filter.hpp"
#include "densecrf/lattice.hpp"
#include "densecrf/parallel.hpp"
#include "simd/row_kernels.hpp"

namespace densecrf {

// The splat and the blurs of a lattice.
//
// As stages over blocks of vertices: a stage may work on a block as soon as the stage that it reads
// is far enough ahead, and its rows may be forgotten once those that read them are past. How far
// follows from the neighbours (Topology::reach). Where neighbours are near each other, as with
// spatial kernels, one sweep thus needs a few blocks a stage, which stay in the cache; pass after
// pass over all vertices would fetch every row from memory each time.
//
// Where they are not, or where threads share the work, in place along the lines of each axis: every
// row is read and written once for an axis. Both ways compute the same bits.
class Sweep {
 public:
  // `alone`: one thread does all of it, and may sweep.
  Sweep(const Lattice& lattice, int width, BlurOrder order, bool alone);

  // In memory of the caller's, floats(lattice, width, false) of it: spread() is what it can do.
  Sweep(const Lattice& lattice, int width, BlurOrder order, float* memory);
  ~Sweep();
  Sweep(const Sweep&) = delete;
  Sweep& operator=(const Sweep&) = delete;

  // Whether it keeps windows of rows: then in_one() is to be called, otherwise by_lines() or
  // spread().
  bool windowed() const { return windowed_; }

  // Floats that a sweep allocates at most, with windows and without.
  static std::int64_t floats(const Lattice& lattice, int width, bool windowed);

  // From now on rows have this many floats, no more than those it was made for.
  void use_width(int width);

  // splat(rows, begin, end) fills the rows of some vertices, the first of them at `rows`;
  // slice(rows, begin, end) reads rows for some pixels. A lone sweep calls checkpoint() every now
  // and then.
  template <class Splat, class Slice, class Checkpoint>
  void in_one(Splat&& splat, Slice&& slice, Checkpoint&& checkpoint) {
    schedule(
        [&](std::int64_t block) {
          const std::int64_t begin = block * kBlock;
          splat(own_rows(stages_[0], begin), begin, std::min(vertices_, begin + kBlock));
          checkpoint();
        },
        [&](const Stage& stage, std::int64_t block) { blur_block(stage, block); },
        [&](std::int64_t block) {
          slice(result(), block * kBlock, std::min(topology_.pixels, (block + 1) * kBlock));
        });
  }

  template <class Splat, class Slice>
  void by_lines(Splat&& splat, Slice&& slice, Team& team) {
    constexpr std::int64_t kPixels = 2048;
    const RowsView result = spread(splat, team);
    team.run(topology_.pixels, kPixels,
             [&](std::int64_t begin, std::int64_t end, int) { slice(result, begin, end); });
  }

  // The same without the slice: returns what is to be sliced.
  template <class Splat>
  RowsView spread(Splat&& splat, Team& team) {
    constexpr std::int64_t kVertices = 512;
    float* forward = forward_rows();
    float* reversed = symmetric() ? reversed_rows() : nullptr;
    team.run(vertices_, kVertices, [&](std::int64_t begin, std::int64_t end, int) {
      splat(forward + begin * width_, begin, end);
      if (reversed)
        std::copy(forward + begin * width_, forward + end * width_, reversed + begin * width_);
    });
    for (float* rows : {forward, reversed})
      if (rows) std::fill_n(rows + vertices_ * width_, kSpare * width_, 0.0f);
    blur_rows(team);
    return {forward, kEverything};
  }

 private:
  static constexpr std::int64_t kBlock = Topology::kReachBlock;
  static constexpr std::int64_t kSpare =
      1;  // a row of zeros behind those of the vertices: see blur_lines
  static constexpr std::int64_t kEverything = INT64_MAX;  // the mask of an array of all rows

  struct Stage {
    int axis = 0;
    std::size_t from = 0;  // the stage whose neighbouring rows it reads
    bool joins = false;    // has no rows: what it computes is averaged into the result's
    const Topology::Runs* some = nullptr;  // the vertices it is wanted for; all where there is none
    float* rows = nullptr;
    std::int64_t mask = 0;       // a vertex's row is at its number & mask
    std::int64_t done = 0;       // blocks written
    std::int64_t forgotten = 0;  // blocks that nobody reads any more
    std::int64_t window = 0;     // most blocks between the two
  };

  template <class Splat, class Blur, class Slice>
  void schedule(Splat&& splat, Blur&& blur, Slice&& slice);
  void add_chain(bool reversed);
  bool keep_windows();
  std::int64_t window_rows(const Stage& stage) const;
  bool needed(std::size_t stage, std::int64_t block, std::int64_t sliced) const;
  void blur_block(const Stage& stage, std::int64_t block) const;
  void blur(const Stage& stage, std::int64_t begin, std::int64_t end) const;
  void blur_rows(Team& team);
  int columns_at_once() const;
  void join_orders(Team& team);
  float* forward_rows() { return given_ ? given_ : memory_.data(); }
  float* reversed_rows() { return forward_rows() + (vertices_ + kSpare) * width_; }
  bool symmetric() const { return stages_.back().joins; }
  float* own_rows(const Stage& stage, std::int64_t vertex) const {
    return stage.rows + (vertex & stage.mask) * width_;
  }
  RowsView result() const { return {stages_[result_].rows, stages_[result_].mask}; }

  const Topology& topology_;
  int width_;
  std::int64_t vertices_;
  std::int64_t blocks_;
  std::size_t result_;         // the stage that ends with what is to be sliced
  std::vector<Stage> stages_;  // the splat, the blurs of one order, those of the other
  bool windowed_;
  Buffer<float> memory_;
  float* given_ = nullptr;
  std::vector<float> zeros_;  // the row of a vertex that is missing
};

// Whenever a block is splatted, every later stage goes as far as it can.
template <class Splat, class Blur, class Slice>
void Sweep::schedule(Splat&& splat, Blur&& blur, Slice&& slice) {
  for (Stage& stage : stages_) stage.done = stage.forgotten = 0;
  const std::int64_t pixel_blocks = Topology::blocks_of(topology_.pixels);
  std::int64_t sliced = 0;
  while (stages_[0].done < blocks_) {
    splat(stages_[0].done);
    ++stages_[0].done;
    for (std::size_t s = 1; s < stages_.size(); ++s) {
      Stage& stage = stages_[s];
      const std::int32_t* ahead = topology_.reach_of(stage.axis);
      for (; stage.done < blocks_ && stages_[stage.from].done > ahead[stage.done] &&
             (!stage.joins || stages_[result_].done > stage.done);
           ++stage.done)
        blur(stage, stage.done);
    }
    for (; sliced < pixel_blocks && stages_.back().done > topology_.pixel_reach[sliced]; ++sliced)
      slice(sliced);
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      Stage& stage = stages_[s];
      stage.window = std::max(stage.window, stage.done - stage.forgotten);
      while (stage.forgotten < stage.done && !needed(s, stage.forgotten, sliced)) ++stage.forgotten;
    }
  }
}

}  // namespace densecrf
