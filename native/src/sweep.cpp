#include "sweep.hpp"

#include <bit>

namespace densecrf {

namespace {

constexpr int kArrays = 2;  // one for each order of blurs

}  // namespace

std::int64_t Sweep::floats(const Lattice& lattice, int width, bool windowed) {
  return (windowed ? 1 : kArrays) * static_cast<std::int64_t>(lattice.vertices()) * width;
}

Sweep::Sweep(const Lattice& lattice, int width, BlurOrder order, bool alone)
    : topology_(*lattice.topology),
      width_(width),
      vertices_(lattice.vertices()),
      blocks_(Topology::blocks_of(vertices_)),
      result_(static_cast<std::size_t>(topology_.dimension) + 1),
      stages_(1),
      zeros_(static_cast<std::size_t>(width), 0.0f) {
  add_chain(false);
  if (order == BlurOrder::kSymmetric) {
    add_chain(true);
    stages_.back().joins = true;
  }
  windowed_ = alone && keep_windows();
  if (!windowed_) memory_ = topology_.shelf.take(kArrays * vertices_ * width_);
}

Sweep::~Sweep() {
  topology_.shelf.leave(std::move(memory_));
}

// One blur along each axis.
void Sweep::add_chain(bool reversed) {
  const int d = topology_.dimension;
  for (int i = 0; i <= d; ++i) {
    Stage stage;
    stage.axis = reversed ? d - i : i;
    stage.from = i == 0 ? 0 : stages_.size() - 1;
    if (reversed && !topology_.reversed.empty())
      stage.some = &topology_.reversed[static_cast<std::size_t>(i)];
    stages_.push_back(stage);
  }
}

// Whether a stage still to come reads this block of a stage's rows. Neighbours are mutual: the last
// to read a block is its farthest neighbour.
bool Sweep::needed(std::size_t stage, std::int64_t block, std::int64_t sliced) const {
  for (std::size_t s = stage + 1; s < stages_.size(); ++s) {
    const Stage& reader = stages_[s];
    if (reader.from == stage && reader.done <= topology_.reach_of(reader.axis)[block]) return true;
  }
  if (stage != result_) return false;
  return stages_.back().done <= block || sliced <= topology_.last_pixel[block];
}

std::int64_t Sweep::window_rows(const Stage& stage) const {
  if (stage.joins) return 0;
  return kBlock *
         static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(stage.window)));
}

// Gives each stage as many rows as a rehearsal of the sweep takes; false where that saves little.
bool Sweep::keep_windows() {
  schedule([](std::int64_t) {}, [](const Stage&, std::int64_t) {}, [](std::int64_t) {});
  std::int64_t rows = 0;
  for (const Stage& stage : stages_) rows += window_rows(stage);
  if (rows >= vertices_) return false;
  memory_ = topology_.shelf.take(rows * width_);
  for (Stage& stage : stages_) stage.mask = window_rows(stage) - 1;
  use_width(width_);
  return true;
}

void Sweep::use_width(int width) {
  width_ = width;
  float* at = memory_.data();
  for (Stage& stage : stages_) {
    stage.rows = at;
    at += window_rows(stage) * width_;
  }
}

void Sweep::blur_block(const Stage& stage, std::int64_t block) const {
  if (!stage.some) {
    blur(stage, block * kBlock, std::min(vertices_, (block + 1) * kBlock));
    return;
  }
  const std::vector<std::int32_t>& first = stage.some->first;
  for (std::int32_t i = first[block]; i < first[block + 1]; ++i)
    blur(stage, stage.some->intervals[i].first, stage.some->intervals[i].second);
}

void Sweep::blur(const Stage& stage, std::int64_t begin, std::int64_t end) const {
  const Stage& from = stages_[stage.from];
  float* out = own_rows(stage.joins ? stages_[result_] : stage, begin);
  rows().blur(topology_.axis(stage.axis), topology_.vertices, {from.rows, from.mask}, zeros_.data(),
              own_rows(from, begin), stage.joins, out, width_, begin, end);
}

// Blurs rows in place along all axes, in this order; the reversed ones end averaged with the
// others.
void Sweep::blur_lines(float* rows, bool reversed, Team& team) {
  constexpr std::int64_t kVertices = 512;
  const int d = topology_.dimension;
  const bool everywhere = topology_.reversed.empty();
  for (int i = 0; i <= d; ++i) {
    const std::int32_t* lines = topology_.lines_of(reversed ? d - i : i);
    float* mean = reversed && everywhere && i == d ? memory_.data() : nullptr;
    const auto next_line = [&](std::int64_t at) {
      while (lines[at] >= 0) ++at;
      return at;
    };
    team.run(vertices_, kVertices, [&](std::int64_t begin, std::int64_t end, int) {
      densecrf::rows().blur_lines(lines, next_line(begin), next_line(end), rows, mean, width_);
    });
  }
  if (reversed && !everywhere) join_lines(rows, team);
}

void Sweep::join_lines(const float* reversed, Team& team) {
  const Topology::Runs& wanted = topology_.reversed.back();
  team.run(static_cast<std::int64_t>(wanted.intervals.size()), 64,
           [&](std::int64_t begin, std::int64_t end, int) {
             for (std::int64_t i = begin; i < end; ++i)
               for (std::int64_t at = wanted.intervals[i].first * std::int64_t{width_};
                    at < wanted.intervals[i].second * std::int64_t{width_}; ++at)
                 memory_[at] = 0.5f * (reversed[at] + memory_[at]);
           });
}

}  // namespace densecrf
