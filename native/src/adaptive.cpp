#include <algorithm>
#include <cmath>
#include <functional>
#include <new>
#include <numeric>
#include <vector>

#include "densecrf/baselines.hpp"

namespace densecrf {

namespace {

constexpr std::int64_t kCheckEvery = 256;

struct Entry {
  std::int32_t rank;  // of the score among the distinct scores of this label
  float value;
};

// One sorted list of entries a vertex, end to end; the last list, of no vertex, is empty.
struct Lists {
  std::vector<std::int64_t> begin{0};
  std::vector<Entry> entries;

  void close() { begin.push_back(static_cast<std::int64_t>(entries.size())); }
  const Entry* first(std::int64_t v) const { return entries.data() + begin[v]; }
  const Entry* last(std::int64_t v) const { return entries.data() + begin[v + 1]; }

  void append(Entry entry) {
    if (static_cast<std::int64_t>(entries.size()) > begin.back() &&
        entries.back().rank == entry.rank)
      entries.back().value += entry.value;
    else
      entries.push_back(entry);
  }
};

std::vector<std::int32_t> ranks_of(const float* scores, std::int64_t n) {
  // NaN has no place in an order; it goes below everything.
  const auto ordinary = [](float score) { return score == score ? score : -HUGE_VALF; };
  std::vector<float> distinct(static_cast<std::size_t>(n));
  std::transform(scores, scores + n, distinct.begin(), ordinary);
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  std::vector<std::int32_t> rank(static_cast<std::size_t>(n));
  for (std::int64_t a = 0; a < n; ++a)
    rank[a] = static_cast<std::int32_t>(
        std::lower_bound(distinct.begin(), distinct.end(), ordinary(scores[a])) - distinct.begin());
  return rank;
}

Lists splat_lists(const Lattice& lattice, const std::vector<std::int32_t>& rank,
                  const std::function<void()>& checkpoint) {
  const Topology& t = *lattice.topology;
  Lists lists;
  lists.entries.reserve(static_cast<std::size_t>(t.entry_pixel.size()));
  std::vector<Entry> own;
  for (std::int64_t v = 0; v < t.vertices; ++v) {
    own.clear();
    for (std::int64_t e = t.row_begin[v]; e < t.row_begin[v + 1]; ++e)
      own.push_back({rank[t.entry_pixel[e]], lattice.entry_weight[e]});
    std::stable_sort(own.begin(), own.end(),
                     [](const Entry& a, const Entry& b) { return a.rank < b.rank; });
    for (const Entry& entry : own) lists.append(entry);
    lists.close();
    if (v % kCheckEvery == 0) checkpoint();
  }
  lists.close();
  return lists;
}

// Merges a vertex's list with its two neighbours', halved.
Lists blur_lists(const Lists& in, const std::int32_t* axis, std::int64_t vertices,
                 std::int64_t max_entries, const std::function<void()>& checkpoint) {
  Lists out;
  out.entries.reserve(in.entries.size());
  for (std::int64_t v = 0; v < vertices; ++v) {
    const std::int64_t from[3] = {v, axis[2 * v], axis[2 * v + 1]};
    const Entry* at[3];
    const Entry* end[3];
    for (int s = 0; s < 3; ++s) {
      at[s] = in.first(from[s]);
      end[s] = in.last(from[s]);
    }
    for (;;) {
      int least = -1;
      for (int s = 0; s < 3; ++s)
        if (at[s] != end[s] && (least < 0 || at[s]->rank < at[least]->rank)) least = s;
      if (least < 0) break;
      out.append({at[least]->rank, at[least]->value * (least == 0 ? 1.0f : 0.5f)});
      ++at[least];
    }
    out.close();
    if (static_cast<std::int64_t>(out.entries.size()) > max_entries) throw std::bad_alloc();
    if (v % kCheckEvery == 0) checkpoint();
  }
  out.close();
  return out;
}

// Replaces each value by the mass below minus the mass above at this list's own ranks, and keeps
// what lies at and below each rank for queries in between.
void accumulate(Lists& lists, std::int64_t vertices) {
  for (std::int64_t v = 0; v < vertices; ++v) {
    float running = 0;
    for (std::int64_t e = lists.begin[v]; e < lists.begin[v + 1]; ++e)
      lists.entries[e].value = running += lists.entries[e].value;
  }
}

// Mass of smaller rank minus mass of larger rank.
float signed_mass(const Lists& lists, std::int64_t v, std::int32_t rank) {
  const Entry* first = lists.first(v);
  const Entry* last = lists.last(v);
  if (first == last) return 0;
  const Entry* at = std::lower_bound(
      first, last, rank, [](const Entry& entry, std::int32_t r) { return entry.rank < r; });
  const float below = at == first ? 0 : (at - 1)->value;
  const float to_here = at != last && at->rank == rank ? at->value : below;
  return below - ((last - 1)->value - to_here);
}

void filter_label(const Lattice& lattice, const float* scores, float* out, Blur blur,
                  std::int64_t max_entries, const std::function<void()>& checkpoint) {
  const Topology& t = *lattice.topology;
  const std::int64_t n = t.pixels;
  const auto rank = ranks_of(scores, n);
  const Lists splatted = splat_lists(lattice, rank, checkpoint);
  const int orders = blur == Blur::kSymmetric ? 2 : 1;
  const float scale = lattice.scale() / static_cast<float>(orders);
  std::fill(out, out + n, 0.0f);
  for (int reversed = 0; reversed < orders; ++reversed) {
    Lists lists = splatted;
    for (int i = 0; i <= t.dimension; ++i)
      lists = blur_lists(lists, t.axis(reversed ? t.dimension - i : i), t.vertices, max_entries,
                         checkpoint);
    accumulate(lists, t.vertices);
    for (std::int64_t a = 0; a < n; ++a) {
      float sum = 0;
      for (int k = 0; k <= t.dimension; ++k)
        sum += lattice.corner_weight[k * n + a] * signed_mass(lists, t.corner[k * n + a], rank[a]);
      out[a] += scale * sum;
      if (a % kCheckEvery == 0) checkpoint();
    }
  }
}

}  // namespace

void filter_adaptive(const Lattice& lattice, const float* scores, float* out, int channels,
                     Blur blur, std::int64_t max_entries, Team& team) {
  const std::int64_t n = lattice.pixels();
  team.run(channels, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
    for (std::int64_t c = begin; c < end; ++c)
      filter_label(lattice, scores + c * n, out + c * n, blur, max_entries,
                   [&] { team.checkpoint(thread); });
  });
}

}  // namespace densecrf
