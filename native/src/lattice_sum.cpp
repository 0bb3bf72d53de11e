#include "densecrf/lattice_sum.hpp"

#include <algorithm>

#include "blurred_lattices.hpp"
#include "densecrf/entries.hpp"
#include "deterministic_sums.hpp"

namespace densecrf {

namespace {

constexpr int kTile = BlurredLattices::kTile;
constexpr std::int64_t kGrain = 2048;

// The sum is taken pixel by pixel where that needs no more memory than the planes take.
bool at_once(const LatticeSum& sum, Planes planes) {
  return BlurredLattices::fits(sum, planes.labels, planes.labels * planes.n);
}

// The labels that carry anything at all, ascending: those with a number other than 0 in one of the
// two, of which the second may be null.
std::vector<std::int64_t> carrying(Planes planes, const float* y, const float* before, Team& team) {
  std::vector<std::uint8_t> found(static_cast<std::size_t>(planes.labels), 0);
  const auto anything = [&](const float* plane) {
    for (std::int64_t a = 0; a < planes.n; a += kGrain) {  // without a branch for each number
      int some = 0;
      const std::int64_t end = std::min(planes.n, a + kGrain);
      for (std::int64_t b = a; b < end; ++b) some |= plane[b] != 0;
      if (some) return true;
    }
    return false;
  };
  team.run(planes.labels, 1, [&](std::int64_t i, std::int64_t, int) {
    const std::int64_t at = i * planes.n;
    found[static_cast<std::size_t>(i)] = anything(y + at) || (before && anything(before + at));
  });
  std::vector<std::int64_t> labels;
  for (std::int64_t i = 0; i < planes.labels; ++i)
    if (found[static_cast<std::size_t>(i)]) labels.push_back(i);
  return labels;
}

}  // namespace

std::int64_t LatticeSum::pixels() const {
  return entries ? entries->pixels() : terms.front().lattice->pixels();
}

void filter_one_by_one(const LatticeSum& sum, Planes planes, const float* in, float* out,
                       Team& team) {
  for (const auto& term : sum.terms)
    filter_plain(*term.lattice, {in, planes.n, 1}, {out, planes.n, 1}, planes.labels, sum.blur,
                 static_cast<float>(term.weight), &term != sum.terms.data(), team);
}

void filter_sum(const LatticeSum& sum, Planes planes, const float* in, float* out, Team& team) {
  if (!at_once(sum, planes)) {
    filter_one_by_one(sum, planes, in, out, team);
    return;
  }
  BlurredLattices blurred(sum, planes.labels);
  blurred.splat_planes(in, team);
  team.run(planes.n, kGrain, [&](std::int64_t begin, std::int64_t end, int) {
    std::vector<float> tile(static_cast<std::size_t>(planes.labels) * kTile);
    for (std::int64_t a = begin; a < end; a += kTile) {
      const std::int64_t stop = std::min(end, a + kTile);
      blurred.slice(a, stop, tile.data());
      for (int i = 0; i < planes.labels; ++i)
        std::copy_n(tile.data() + i * kTile, stop - a, out + i * planes.n + a);
    }
  });
}

MeanField::MeanField(const LatticeSum& sum, Planes planes, const float* phi, const float* own)
    : sum_(sum), planes_(planes), phi_(phi), own_(own) {}

MeanField::~MeanField() = default;

void MeanField::step(const float* y, float* out, bool more, Team& team) {
  const auto [labels, n] = planes_;
  std::unique_ptr<BlurredLattices> blurred = std::move(blurred_);
  if (!blurred) {
    blurred = std::make_unique<BlurredLattices>(sum_, labels);
    if (!at_once(sum_, planes_)) {
      Buffer<float> filtered(labels * n);
      filter_one_by_one(sum_, planes_, y, filtered.data(), team);
      mean_field_update(planes_, phi_, filtered.data(), own_ ? y : nullptr, own_, out, team);
      return;
    }
    blurred->splat_planes(y, team);
  }
  more = more && team.size() == 1 && blurred->can_add();
  if (more) blurred->begin_adding();
  team.run(n, kGrain, [&, labels = labels, n = n](std::int64_t begin, std::int64_t end, int) {
    std::vector<float> tile(static_cast<std::size_t>(labels) * kTile), scratch(tile.size());
    for (std::int64_t a = begin; a < end; a += kTile) {
      const std::int64_t stop = std::min(end, a + kTile);
      blurred->slice(a, stop, tile.data());
      pixel_kernels().mean_field_update({n, labels, static_cast<int>(stop - a), scratch.data()},
                                        phi_ + a, tile.data(), kTile, own_ ? y + a : nullptr,
                                        own_ ? own_ + a : nullptr, out + a);
      if (more) blurred->add(out + a, n, a, stop);
    }
  });
  if (!more) return;
  blurred->blur_added(team);
  blurred_ = std::move(blurred);
}

QuadraticStep quadratic_step(const LatticeSum& sum, Planes planes, const float* phi, const float* y,
                             const float* before, float share, const float* own, const float* c,
                             const float* strength, const float* rest, float* out, Team& team) {
  constexpr int kGenerous = 16;  // planes' worth of floats, beside one for each label
  const auto [labels, n] = planes;
  std::vector<std::int64_t> present = carrying(planes, y, before, team);
  const Planes few{static_cast<int>(present.size()), n};
  Buffer<float> packed;
  if (before || few.labels < labels) {
    packed.reset(few.labels * n);
    team.run(n, kGrain, [&, n = n](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t a = begin; a < end; a += kTile)
        pixel_kernels().extrapolate(
            {n, few.labels, static_cast<int>(std::min<std::int64_t>(kTile, end - a)), nullptr},
            present.data(), y + a, before ? before + a : nullptr, share, packed.data() + a);
    });
  }
  const float* v = packed.size() > 0 ? packed.data() : y;
  const bool once = BlurredLattices::fits(sum, few.labels, (kGenerous + few.labels) * n);
  BlurredLattices blurred(sum, few.labels);
  Buffer<float> filtered;
  if (once) {
    blurred.splat_planes(v, team);
  } else {
    filtered.reset(few.labels * n);
    filter_one_by_one(sum, few, v, filtered.data(), team);
  }
  const auto sums = sum_over_chunks<4>(
      n, team, [&, labels = labels, n = n](std::int64_t begin, std::int64_t end, double* sums) {
        std::vector<float> scratch(static_cast<std::size_t>(labels) * kTile);
        std::vector<float> tile(static_cast<std::size_t>(once ? few.labels : 0) * kTile);
        for (std::int64_t a = begin; a < end; a += kTile) {
          const std::int64_t stop = std::min(end, a + kTile);
          if (once) blurred.slice(a, stop, tile.data());
          pixel_kernels().quadratic_step({n, labels, static_cast<int>(stop - a), scratch.data()},
                                         phi + a, once ? tile.data() : filtered.data() + a,
                                         once ? kTile : n, v + a, y + a, present.data(), few.labels,
                                         own + a, c ? c + a : nullptr, strength + a,
                                         rest ? rest + a : nullptr, out + a, sums);
        }
      });
  return {sums, std::move(present)};
}

}  // namespace densecrf
