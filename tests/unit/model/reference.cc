#include "tests/unit/model/reference.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <utility>

namespace cria::model::reference {
namespace {

Values Zeros(int64_t n) { return Values(static_cast<size_t>(n)); }

}  // namespace

Values Matmul(const Values& a, const Values& b, const MatmulShape& s) {
  Values c = Zeros(s.m * s.n);
  for (int64_t i = 0; i < s.m; ++i) {
    for (int64_t j = 0; j < s.n; ++j) {
      for (int64_t l = 0; l < s.k; ++l) {
        c[i * s.n + j] += a[s.transpose_a ? l * s.m + i : i * s.k + l] *
                          b[s.transpose_b ? j * s.k + l : l * s.n + j];
      }
    }
  }
  return c;
}

Values RmsNorm(const Values& x, const Values& weight, double eps, Values* rstd) {
  const size_t dim = weight.size();
  const size_t rows = x.size() / dim;
  Values y(x.size());
  if (rstd != nullptr) rstd->resize(rows);
  for (size_t r = 0; r < rows; ++r) {
    double sum = 0;
    for (size_t d = 0; d < dim; ++d) sum += x[r * dim + d] * x[r * dim + d];
    const double inverse = 1 / std::sqrt(sum / static_cast<double>(dim) + eps);
    if (rstd != nullptr) (*rstd)[r] = inverse;
    for (size_t d = 0; d < dim; ++d) y[r * dim + d] = weight[d] * x[r * dim + d] * inverse;
  }
  return y;
}

RmsNormGradients RmsNormBackward(const Values& dy, const Values& x, const Values& weight,
                                 double eps) {
  const size_t dim = weight.size();
  RmsNormGradients gradients{Values(x.size()), Values(dim)};
  Values rstd;
  RmsNorm(x, weight, eps, &rstd);
  for (size_t r = 0; r < rstd.size(); ++r) {
    double dot = 0;
    for (size_t d = 0; d < dim; ++d) dot += dy[r * dim + d] * weight[d] * x[r * dim + d];
    for (size_t d = 0; d < dim; ++d) {
      const size_t i = r * dim + d;
      // rstd itself moves by -rstd^3 x / D with x.
      gradients.dx[i] = rstd[r] * weight[d] * dy[i] -
                        std::pow(rstd[r], 3) * x[i] * dot / static_cast<double>(dim);
      gradients.dweight[d] += dy[i] * x[i] * rstd[r];
    }
  }
  return gradients;
}

Values Rope(const Values& x, const Indices& positions, const Values& cosines, const Values& sines,
            int64_t heads, int64_t head_dim, bool inverse) {
  const int64_t half = head_dim / 2;
  Values y = x;
  for (size_t r = 0; r < positions.size(); ++r) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t i = 0; i < half; ++i) {
        const double c = cosines[positions[r] * half + i];
        const double s = sines[positions[r] * half + i] * (inverse ? -1 : 1);
        const size_t first = (r * heads + h) * head_dim + i;
        const size_t second = first + half;
        y[first] = x[first] * c - x[second] * s;
        y[second] = x[second] * c + x[first] * s;
      }
    }
  }
  return y;
}

Values Attention(const Values& q, const Values& k, const Values& v, const Indices& doc_start,
                 const AttentionShape& a, Values* lse) {
  Values out = Zeros(a.batch * a.time * a.heads * a.head_dim);
  if (lse != nullptr) *lse = Zeros(a.batch * a.heads * a.time);
  for (int64_t b = 0; b < a.batch; ++b) {
    for (int64_t h = 0; h < a.heads; ++h) {
      const int64_t g = h / (a.heads / a.kv_heads);
      const auto query = [&](int64_t t) { return ((b * a.time + t) * a.heads + h) * a.head_dim; };
      const auto key = [&](int64_t t) { return ((b * a.time + t) * a.kv_heads + g) * a.head_dim; };
      for (int64_t t = 0; t < a.time; ++t) {
        const int64_t first = doc_start[b * a.time + t];
        Values score;
        for (int64_t s = first; s <= t; ++s) {
          double dot = 0;
          for (int64_t i = 0; i < a.head_dim; ++i) dot += q[query(t) + i] * k[key(s) + i];
          score.push_back(dot * a.scale);
        }
        const double max = *std::max_element(score.begin(), score.end());
        double sum = 0;
        for (const double x : score) sum += std::exp(x - max);
        if (lse != nullptr) (*lse)[(b * a.heads + h) * a.time + t] = max + std::log(sum);
        for (int64_t s = first; s <= t; ++s) {
          const double p = std::exp(score[s - first] - max) / sum;
          for (int64_t i = 0; i < a.head_dim; ++i) out[query(t) + i] += p * v[key(s) + i];
        }
      }
    }
  }
  return out;
}

AttentionGradients AttentionBackward(const Values& dout, const Values& q, const Values& k,
                                     const Values& v, const Indices& doc_start,
                                     const AttentionShape& a) {
  AttentionGradients g{Values(q.size()), Values(k.size()), Values(v.size())};
  Values lse;
  const Values out = Attention(q, k, v, doc_start, a, &lse);
  for (int64_t b = 0; b < a.batch; ++b) {
    for (int64_t h = 0; h < a.heads; ++h) {
      const int64_t group = h / (a.heads / a.kv_heads);
      for (int64_t t = 0; t < a.time; ++t) {
        const int64_t query = ((b * a.time + t) * a.heads + h) * a.head_dim;
        double delta = 0;  // sum over s of p_ts dp_ts
        for (int64_t i = 0; i < a.head_dim; ++i) delta += dout[query + i] * out[query + i];
        for (int64_t s = doc_start[b * a.time + t]; s <= t; ++s) {
          const int64_t key = ((b * a.time + s) * a.kv_heads + group) * a.head_dim;
          double dot = 0, dp = 0;
          for (int64_t i = 0; i < a.head_dim; ++i) {
            dot += q[query + i] * k[key + i];
            dp += dout[query + i] * v[key + i];
          }
          const double p = std::exp(dot * a.scale - lse[(b * a.heads + h) * a.time + t]);
          const double ds = p * (dp - delta) * a.scale;
          for (int64_t i = 0; i < a.head_dim; ++i) {
            g.dq[query + i] += ds * k[key + i];
            g.dk[key + i] += ds * q[query + i];
            g.dv[key + i] += p * dout[query + i];
          }
        }
      }
    }
  }
  return g;
}

Values Swiglu(const Values& gate_up, int64_t ffn) {
  const int64_t rows = static_cast<int64_t>(gate_up.size()) / (2 * ffn);
  Values act = Zeros(rows * ffn);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t f = 0; f < ffn; ++f) {
      const double gate = gate_up[r * 2 * ffn + f];
      act[r * ffn + f] = gate / (1 + std::exp(-gate)) * gate_up[r * 2 * ffn + ffn + f];
    }
  }
  return act;
}

Values SwigluBackward(const Values& dact, const Values& gate_up, int64_t ffn) {
  Values dgate_up(gate_up.size());
  for (int64_t i = 0; i < static_cast<int64_t>(dact.size()); ++i) {
    const int64_t at = i / ffn * 2 * ffn + i % ffn;
    const double gate = gate_up[at];
    const double sigmoid = 1 / (1 + std::exp(-gate));
    dgate_up[at] = dact[i] * gate_up[at + ffn] * (sigmoid + gate * sigmoid * (1 - sigmoid));
    dgate_up[at + ffn] = dact[i] * gate * sigmoid;
  }
  return dgate_up;
}

Values Embedding(const Indices& tokens, const Values& table, int64_t dim) {
  Values out;
  for (const int32_t token : tokens) {
    out.insert(out.end(), table.begin() + token * dim, table.begin() + (token + 1) * dim);
  }
  return out;
}

Values EmbeddingBackward(const Indices& tokens, const Values& dout, int64_t vocab, int64_t dim) {
  Values dtable = Zeros(vocab * dim);
  for (size_t r = 0; r < tokens.size(); ++r) {
    for (int64_t d = 0; d < dim; ++d) {
      dtable[tokens[r] * dim + d] += dout[static_cast<int64_t>(r) * dim + d];
    }
  }
  return dtable;
}

Values CrossEntropy(const Values& logits, const Indices& targets, int64_t vocab, double z_loss) {
  Values losses(targets.size());
  for (size_t r = 0; r < targets.size(); ++r) {
    if (targets[r] < 0) continue;
    const auto row = logits.begin() + static_cast<int64_t>(r) * vocab;
    const double max = *std::max_element(row, row + vocab);
    double sum = 0;
    for (int64_t v = 0; v < vocab; ++v) sum += std::exp(row[v] - max);
    const double lse = max + std::log(sum);
    losses[r] = lse - row[targets[r]] + z_loss * lse * lse;
  }
  return losses;
}

Values CrossEntropyBackward(const Values& logits, const Indices& targets, int64_t vocab,
                            double z_loss, double grad_scale) {
  Values dlogits(logits.size());
  const Values losses = CrossEntropy(logits, targets, vocab, 0);
  for (size_t r = 0; r < targets.size(); ++r) {
    if (targets[r] < 0) continue;
    const int64_t row = static_cast<int64_t>(r) * vocab;
    const double lse = losses[r] + logits[row + targets[r]];
    for (int64_t v = 0; v < vocab; ++v) {
      const double p = std::exp(logits[row + v] - lse);
      dlogits[row + v] = grad_scale * (p - (v == targets[r] ? 1 : 0) + 2 * z_loss * lse * p);
    }
  }
  return dlogits;
}

void AdamW(const AdamWSettings& s, const Values& grad, Values* weight, Values* m, Values* v) {
  for (size_t i = 0; i < grad.size(); ++i) {
    const double g = grad[i] * s.grad_scale;
    (*m)[i] = s.beta1 * (*m)[i] + (1 - s.beta1) * g;
    (*v)[i] = s.beta2 * (*v)[i] + (1 - s.beta2) * g * g;
    const double m_hat = (*m)[i] / (1 - std::pow(s.beta1, static_cast<double>(s.step)));
    const double v_hat = (*v)[i] / (1 - std::pow(s.beta2, static_cast<double>(s.step)));
    (*weight)[i] -= s.lr * (m_hat / (std::sqrt(v_hat) + s.eps) + s.weight_decay * (*weight)[i]);
  }
}

double SumOfSquares(const Values& x) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  return sum;
}

Values Quantize(const QuantizeSpec& spec, const Values& x, int64_t rows, int64_t cols) {
  const bool is_e4m3 = spec.format == Fp8Format::kE4M3;
  const double max = is_e4m3 ? 448 : 57344;
  const double min_normal = std::exp2(is_e4m3 ? -6 : -14);
  const double steps = is_e4m3 ? 8 : 4;  // in a power of two
  const auto group = [&](int64_t i) -> std::pair<int64_t, int64_t> {
    const int64_t r = i / cols;
    const int64_t c = i % cols;
    switch (spec.unit) {
      case ScaleUnit::kTensor:
        return {0, 0};
      case ScaleUnit::kPerRow:
        return {r, 0};
      case ScaleUnit::kPerColumn:
        return {0, c};
      case ScaleUnit::kRow1x128:
        return {r, c / 128};
      case ScaleUnit::kCol128x1:
        return {r / 128, c};
      case ScaleUnit::kBlock128x128:
        return {r / 128, c / 128};
    }
    return {0, 0};
  };
  std::map<std::pair<int64_t, int64_t>, double> amax;
  for (int64_t i = 0; i < rows * cols; ++i) {
    double& largest = amax[group(i)];
    largest = std::max(largest, std::fabs(x[i]));
  }
  Values y;
  for (int64_t i = 0; i < rows * cols; ++i) {
    const double largest = amax[group(i)];
    double scale = largest == 0 ? 1 : max / largest;
    if (spec.pow2_scale) scale = std::exp2(std::floor(std::log2(scale)));
    const double scaled = x[i] * scale;
    const double power = std::exp2(std::floor(std::log2(std::max(std::fabs(scaled), min_normal))));
    const double rounded = std::nearbyint(scaled / power * steps) * power / steps;
    y.push_back(std::clamp(rounded, -max, max) / scale);
  }
  return y;
}

}  // namespace cria::model::reference
