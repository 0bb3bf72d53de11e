#include "splat_and_blur.hpp"

#include <algorithm>
#include <utility>

namespace densecrf {

bool Spread::fits(const std::vector<Term>& terms, int channels, BlurOrder order,
                  std::int64_t floats) {
  std::int64_t needed = 0;
  for (const Term& term : terms)
    for (int b = 0; b < blocks_of(channels); ++b)
      needed += (order == BlurOrder::kSymmetric ? 2 : 1) * std::int64_t{term.lattice->vertices()} *
                width_of(channels, b);
  return needed <= floats;
}

Spread::Spread(const std::vector<Term>& terms, int channels, BlurOrder order)
    : terms_(terms), channels_(channels), order_(order) {
  for (const Term& term : terms) factors_.push_back(term.factor * term.lattice->scale());
}

Spread::~Spread() {
  for (std::size_t i = 0; i < memory_.size(); ++i)
    terms_[i].lattice->topology->shelf.leave(std::move(memory_[i]));
}

// Where a block's rows begin, or, for the one behind the last, how much they take together.
std::int64_t Spread::begin_of(const Lattice& lattice, int block) const {
  std::int64_t floats = 0;
  for (int b = 0; b < block; ++b) floats += Sweep::floats(lattice, width_of(channels_, b), false);
  return floats;
}

void Spread::take_memory() {
  for (const Term& term : terms_)
    memory_.push_back(
        term.lattice->topology->shelf.take(begin_of(*term.lattice, blocks_of(channels_))));
}

template <class Splat>
void Spread::spread(int block, Team& team, const Splat& splat) {
  const int width = width_of(channels_, block);
  if (memory_.empty()) take_memory();
  for (std::size_t i = 0; i < terms_.size(); ++i) {
    const Lattice& lattice = *terms_[i].lattice;
    const LatticeView view = lattice.view();
    sweeps_.push_back(std::make_unique<Sweep>(lattice, width, order_,
                                              memory_[i].data() + begin_of(lattice, block)));
    results_.push_back(
        sweeps_.back()->spread([&](float* vertices, std::int64_t begin,
                                   std::int64_t end) { splat(view, width, vertices, begin, end); },
                               team));
  }
}

void Spread::splat_planes(const float* in, Team& team) {
  const std::int64_t n = pixels();
  Shelf& shelf = terms_[0].lattice->topology->pixel_shelf;
  Buffer<float> pixel_rows = shelf.take(n * std::min(kBlock, row_width(channels_)));
  for (int b = 0; b < blocks_of(channels_); ++b) {
    const int width = width_of(channels_, b);
    team.run(n, kGrain, [&](std::int64_t begin, std::int64_t end, int) {
      rows().to_rows(in + b * kBlock * n + begin, n, channels_in(b), width,
                     pixel_rows.data() + begin * width, end - begin);
    });
    spread(
        b, team,
        [&](const LatticeView& view, int, float* vertices, std::int64_t begin, std::int64_t end) {
          rows().splat(view, pixel_rows.data(), vertices, width, begin, end);
        });
  }
  shelf.leave(std::move(pixel_rows));
}

void Spread::splat_labels(const std::int32_t* channel, Team& team) {
  for (int b = 0; b < blocks_of(channels_); ++b)
    spread(b, team,
           [&](const LatticeView& view, int width, float* vertices, std::int64_t begin,
               std::int64_t end) {
             std::fill(vertices, vertices + (end - begin) * width, 0.0f);
             for (std::int64_t v = begin; v < end; ++v)
               for (std::int64_t e = view.row_begin[v]; e < view.row_begin[v + 1]; ++e) {
                 const std::int32_t c = channel[view.entry_pixel[e]] - b * kBlock;
                 if (c >= 0 && c < width) vertices[(v - begin) * width + c] += view.entry_weight[e];
               }
           });
}

void Spread::slice(std::int64_t begin, std::int64_t end, float* tile) const {
  float pixel_rows[kTile * kBlock];
  for (int b = 0; b < blocks_of(channels_); ++b) {
    const int width = width_of(channels_, b);
    for (std::size_t i = 0; i < terms_.size(); ++i)
      rows().slice(terms_[i].lattice->view(),
                   results_[static_cast<std::size_t>(b) * terms_.size() + i], factors_[i], i > 0,
                   pixel_rows, width, begin, end);
    rows().to_planes(pixel_rows, channels_in(b), width, 1.0f, false, tile + b * kBlock * kTile,
                     kTile, end - begin);
  }
}

void Spread::slice_own(const std::int32_t* channel, std::int64_t begin, std::int64_t end,
                       float* out) const {
  std::int32_t column[kTile];
  for (std::int64_t first = begin; first < end;) {  // runs of pixels of one block
    const int block = channel[first] / kBlock;
    std::int64_t stop = first;
    for (; stop < end && stop - first < kTile && channel[stop] / kBlock == block; ++stop)
      column[stop - first] = channel[stop] % kBlock;
    for (std::size_t i = 0; i < terms_.size(); ++i)
      rows().slice_one(terms_[i].lattice->view(),
                       results_[static_cast<std::size_t>(block) * terms_.size() + i], factors_[i],
                       i > 0, column, out + first - begin, width_of(channels_, block), first, stop);
    first = stop;
  }
}

}  // namespace densecrf
