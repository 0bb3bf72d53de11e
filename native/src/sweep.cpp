#include "sweep.hpp"

#include <bit>

namespace densecrf {

namespace {

constexpr int kArrays = 3;

}  // namespace

std::int64_t Sweep::floats(const Lattice& lattice, int width, bool windowed) {
  return (windowed ? 1 : kArrays) * (static_cast<std::int64_t>(lattice.vertices()) + 1) * width;
}

Sweep::Sweep(const Lattice& lattice, int width, BlurOrder order, bool alone)
    : topology_(*lattice.topology),
      width_(width),
      vertices_(lattice.vertices()),
      blocks_(blocks_of(vertices_)),
      stages_(1),
      zeros_(static_cast<std::size_t>(width), 0.0f) {
  add_chain(false);
  if (order == BlurOrder::kSymmetric) {
    const std::size_t forward = stages_.size() - 1;
    add_chain(true);
    stages_.back().add = forward;
  }
  if (!alone || !keep_windows()) keep_all();
}

Sweep::~Sweep() {
  try {
    topology_.shelf.leave(std::move(memory_));
  } catch (const std::bad_alloc&) {  // then it is freed instead
  }
}

// One blur along each axis.
void Sweep::add_chain(bool reversed) {
  const int d = topology_.dimension;
  for (int i = 0; i <= d; ++i) {
    Stage stage;
    stage.axis = reversed ? d - i : i;
    stage.from = i == 0 ? 0 : stages_.size() - 1;
    stages_.push_back(stage);
  }
}

// Whether a stage still to come reads this block of a stage's rows. Neighbours are mutual: the last
// to read a block is its farthest neighbour.
bool Sweep::needed(std::size_t stage, std::int64_t block, std::int64_t sliced) const {
  for (std::size_t s = stage + 1; s < stages_.size(); ++s) {
    const Stage& reader = stages_[s];
    if (reader.from == stage && reader.done <= topology_.reach_of(reader.axis)[block]) return true;
    if (reader.add != 0 && reader.add == stage && reader.done <= block) return true;
  }
  return stage + 1 == stages_.size() && sliced <= topology_.last_pixel[block];
}

// Gives each stage as many rows as a rehearsal of the sweep takes; false where that saves little.
bool Sweep::keep_windows() {
  schedule([](std::int64_t) {}, [](const Stage&, std::int64_t) {}, [](std::int64_t) {});
  std::int64_t rows = 0;
  for (const Stage& stage : stages_)
    rows +=
        kBlock * static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(stage.window)));
  if (rows >= vertices_) return false;
  memory_ = topology_.shelf.take(rows * width_);
  float* at = memory_.data();
  for (Stage& stage : stages_) {
    const auto size =
        kBlock * static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(stage.window)));
    stage.rows = at;
    stage.mask = size - 1;
    at += size * width_;
  }
  return true;
}

// Three arrays for all rows, which take turns: one order of blurs leaves its result in one of them,
// the other order has the remaining two. A stage overwrites what others have read, so the stages
// can only be run one after the other: see by_stages().
void Sweep::keep_all() {
  const std::int64_t size = (vertices_ + 1) * width_;  // with a row of zeros
  memory_ = topology_.shelf.take(kArrays * size);
  for (int i = 1; i <= kArrays; ++i)
    std::fill(memory_.data() + i * size - width_, memory_.data() + i * size, 0.0f);
  const std::size_t chain = static_cast<std::size_t>(topology_.dimension) + 1;
  const std::size_t result = chain % 2 == 1 ? 1 : 2;
  stages_[0].rows = memory_.data();
  for (std::size_t s = 1; s < stages_.size(); ++s) {
    const bool odd = (s <= chain ? s : s - chain) % 2 == 1;
    const std::size_t array = s <= chain ? (odd ? 1 : 2) : (odd ? 3 - result : 0);
    stages_[s].rows = memory_.data() + static_cast<std::int64_t>(array) * size;
  }
  for (Stage& stage : stages_) stage.mask = kEverything;
}

void Sweep::blur(const Stage& stage, std::int64_t begin, std::int64_t end) const {
  const Stage& from = stages_[stage.from];
  rows().blur(topology_.axis(stage.axis), topology_.vertices, {from.rows, from.mask}, zeros_.data(),
              own_rows(from, begin), stage.add ? own_rows(stages_[stage.add], begin) : nullptr,
              own_rows(stage, begin), width_, begin, end);
}

}  // namespace densecrf
