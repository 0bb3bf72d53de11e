#include "densecrf/filter_sum.hpp"

#include <algorithm>
#include <memory>

#include "densecrf/pixels.hpp"
#include "densecrf/rows.hpp"
#include "sweep.hpp"

namespace densecrf {

namespace {

constexpr int kBlock = Rows::kVector;  // channels side by side
constexpr int kTile = Pixels::kTile;
constexpr std::int64_t kGrain = 2048;

int blocks_of(int channels) {
  return (channels + kBlock - 1) / kBlock;
}

int width_of(int channels, int block) {
  return row_width(std::min(kBlock, channels - block * kBlock));
}

// The sum is taken pixel by pixel where all channels' rows of all vertices can be held at once: in
// no more memory than the planes take.
bool fits(const std::vector<Term>& terms, Planes planes, BlurOrder order) {
  std::int64_t floats = 0;
  for (const Term& term : terms)
    for (int b = 0; b < blocks_of(planes.labels); ++b)
      floats += (order == BlurOrder::kSymmetric ? 2 : 1) * std::int64_t{term.lattice->vertices()} *
                width_of(planes.labels, b);
  return floats <= planes.labels * planes.n;
}

// Splats and blurs of all terms and blocks of channels; what is left is to slice.
class Spread {
 public:
  Spread(const std::vector<Term>& terms, Planes planes, const float* in, BlurOrder order,
         Team& team)
      : terms_(terms), planes_(planes) {
    Shelf& shelf = terms[0].lattice->topology->pixel_shelf;
    Buffer<float> rows =
        shelf.take(planes.n * std::min<std::int64_t>(kBlock, row_width(planes.labels)));
    for (int b = 0; b < blocks_of(planes.labels); ++b) {
      const int width = width_of(planes.labels, b);
      team.run(planes.n, kGrain, [&](std::int64_t begin, std::int64_t end, int) {
        densecrf::rows().to_rows(in + b * kBlock * planes.n + begin, planes.n, channels(b), width,
                                 rows.data() + begin * width, end - begin);
      });
      for (const Term& term : terms) {
        const LatticeView view = term.lattice->view();
        sweeps_.push_back(std::make_unique<Sweep>(*term.lattice, width, order, false));
        results_.push_back(sweeps_.back()->spread(
            [&](float* vertices, std::int64_t begin, std::int64_t end) {
              densecrf::rows().splat(view, rows.data(), vertices, width, begin, end);
            },
            team));
      }
    }
    shelf.leave(std::move(rows));
  }

  // The sum at pixels [begin, end), at most a tile, as planes kTile apart.
  void slice(std::int64_t begin, std::int64_t end, float* tile) const {
    float rows[kTile * kBlock];
    for (int b = 0; b < blocks_of(planes_.labels); ++b) {
      const int width = width_of(planes_.labels, b);
      for (std::size_t i = 0; i < terms_.size(); ++i)
        densecrf::rows().slice(
            terms_[i].lattice->view(), results_[static_cast<std::size_t>(b) * terms_.size() + i],
            terms_[i].factor * terms_[i].lattice->scale(), i > 0, rows, width, begin, end);
      densecrf::rows().to_planes(rows, channels(b), width, 1.0f, false, tile + b * kBlock * kTile,
                                 kTile, end - begin);
    }
  }

 private:
  int channels(int block) const { return std::min(kBlock, planes_.labels - block * kBlock); }

  const std::vector<Term>& terms_;
  Planes planes_;
  std::vector<std::unique_ptr<Sweep>> sweeps_;  // by block and term
  std::vector<RowsView> results_;
};

// Calls use(tile, begin, end, scratch) with the sum at each tile of pixels.
template <class Use>
void each_tile(const std::vector<Term>& terms, Planes planes, const float* in, BlurOrder order,
               Team& team, const Use& use) {
  const Spread spread(terms, planes, in, order, team);
  team.run(planes.n, kGrain, [&](std::int64_t begin, std::int64_t end, int) {
    const auto size = static_cast<std::size_t>(planes.labels) * kTile;
    std::vector<float> tile(size), scratch(size);
    for (std::int64_t a = begin; a < end; a += kTile) {
      const std::int64_t stop = std::min(end, a + kTile);
      spread.slice(a, stop, tile.data());
      use(tile.data(), a, stop, scratch.data());
    }
  });
}

void filter_one_by_one(const std::vector<Term>& terms, Planes planes, const float* in, float* out,
                       BlurOrder order, Team& team) {
  for (const Term& term : terms)
    filter_plain(*term.lattice, {in, planes.n, 1}, {out, planes.n, 1}, planes.labels, order,
                 term.factor, &term != terms.data(), team);
}

}  // namespace

void filter_sum(const std::vector<Term>& terms, Planes planes, const float* in, float* out,
                BlurOrder order, Team& team) {
  if (!fits(terms, planes, order)) {
    filter_one_by_one(terms, planes, in, out, order, team);
    return;
  }
  each_tile(terms, planes, in, order, team,
            [&](const float* tile, std::int64_t begin, std::int64_t end, float*) {
              for (int i = 0; i < planes.labels; ++i)
                std::copy_n(tile + i * kTile, end - begin, out + i * planes.n + begin);
            });
}

void mean_field_step(const std::vector<Term>& terms, Planes planes, const float* phi,
                     const float* y, const float* own, float* out, BlurOrder order, Team& team) {
  if (!fits(terms, planes, order)) {
    Buffer<float> filtered(planes.labels * planes.n);
    filter_one_by_one(terms, planes, y, filtered.data(), order, team);
    mean_field_response(planes, phi, filtered.data(), own ? y : nullptr, own, out, team);
    return;
  }
  each_tile(terms, planes, y, order, team,
            [&](const float* tile, std::int64_t begin, std::int64_t end, float* scratch) {
              const Tile at{planes.n, planes.labels, static_cast<int>(end - begin), scratch};
              pixels().respond(at, phi + begin, tile, kTile, own ? y + begin : nullptr,
                               own ? own + begin : nullptr, out + begin);
            });
}

}  // namespace densecrf
