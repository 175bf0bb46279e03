#include "trainer/config/train_config.h"

#include <algorithm>
#include <optional>

#include "base/config.h"

namespace cria::trainer {
namespace {

constexpr model::Shard kShards[] = {model::Shard::kNone, model::Shard::kOptimizer,
                                    model::Shard::kGradients, model::Shard::kWeights};

std::vector<std::string> ShardNames() {
  std::vector<std::string> names;
  for (const model::Shard shard : kShards) names.push_back(Name(shard));
  return names;
}

void VisitModel(ConfigVisitor& v, model::LlamaConfig* m) {
  v.Field("layers", &m->layers, {.min = 1, .max = 1024});
  v.Field("dim", &m->dim, {.min = 2, .max = 1 << 20});
  v.Field("heads", &m->heads, {.min = 1, .max = 1 << 16});
  v.Field("kv_heads", &m->kv_heads, {.min = 1, .max = 1 << 16});
  v.Field("head_dim", &m->head_dim, {.min = 0, .max = 4096});
  v.Field("ffn", &m->ffn, {.min = 1, .max = 1 << 20});
  v.Field("vocab", &m->vocab, {.min = 1, .max = 1 << 24});
  v.Field("max_positions", &m->max_positions, {.min = 1, .max = 1 << 24});
  v.Field("norm_eps", &m->norm_eps, {.min = 1e-12, .max = 0.1});
  v.Field("tied_head", &m->tied_head);
  v.Field("rope_theta", &m->rope_theta, {.min = 1, .max = 1e12});
  v.Section("rope_scaling", [m](ConfigVisitor& s) {
    model::RopeScaling* r = &m->rope_scaling;
    s.Choice("type", &r->type, {"default", "linear", "llama3"});
    s.Field("factor", &r->factor, {.min = 1, .max = 1e6});
    s.Field("low_freq_factor", &r->low_freq_factor, {.min = 1e-6, .max = 1e6});
    s.Field("high_freq_factor", &r->high_freq_factor, {.min = 1e-6, .max = 1e6});
    s.Field("original_max_positions", &r->original_max_positions, {.min = 1, .max = 1 << 24});
  });
}

void VisitData(ConfigVisitor& v, DataConfig* d) {
  v.Field("path", &d->path);
  v.Field("inputs", &d->inputs);
  v.Field("field", &d->field);
  v.Field("vocab", &d->vocab, {.min = 258, .max = 1 << 20});
  v.Field("val_fraction", &d->val_fraction, {.min = 0, .max = 0.5});
  v.Field("shuffle", &d->shuffle);
}

void VisitTrain(ConfigVisitor& v, TrainSection* t) {
  v.Field("batch", &t->batch, {.min = 1, .max = 1 << 20});
  v.Field("micro_batch", &t->micro_batch, {.min = 1, .max = 1 << 20});
  v.Field("seq", &t->seq, {.min = 2, .max = 1 << 20});
  v.Field("ramp_batch", &t->ramp_batch, {.min = 1, .max = 1 << 20});
  v.Field("ramp_until", &t->ramp_until, {.min = 1, .max = 1e12});
  v.Field("lr", &t->lr, {.min = 0, .max = 10});
  v.Field("min_lr_ratio", &t->min_lr_ratio, {.min = 0, .max = 1});
  v.Field("warmup", &t->warmup, {.min = 0, .max = 1e12});
  v.Choice("schedule", &t->schedule, {"cosine", "wsd"});
  v.Field("decay_fraction", &t->decay_fraction, {.min = 0, .max = 1});
  v.Field("beta1", &t->beta1, {.min = 0, .max = 0.9999999});
  v.Field("beta2", &t->beta2, {.min = 0, .max = 0.9999999});
  v.Field("eps", &t->eps, {.min = 1e-30, .max = 1});
  v.Field("weight_decay", &t->weight_decay, {.min = 0, .max = 10});
  v.Field("clip_norm", &t->clip_norm, {.min = 0, .max = 1e9});
  v.Field("z_loss", &t->z_loss, {.min = 0, .max = 1});
  v.Choice("recompute", &t->recompute, {"none", "selective", "full"});
  v.Field("token_grain", &t->token_grain, {.min = 0, .max = 1 << 20});
  v.Field("eval_every", &t->eval_every, {.min = 0, .max = 1e12});
  v.Field("eval_samples", &t->eval_samples, {.min = 1, .max = 1 << 24});
  v.Field("max_bad_steps", &t->max_bad_steps, {.min = 1, .max = 1e9});
  v.Field("peak_gflops", &t->peak_gflops, {.min = 0, .max = 1e9});
}

void VisitParallel(ConfigVisitor& v, ParallelConfig* p) {
  v.Field("tp", &p->tp, {.min = 1, .max = model::kMaxRanks});
  v.Field("cp", &p->cp, {.min = 1, .max = model::kMaxRanks});
  v.Field("pp", &p->pp, {.min = 1, .max = model::kMaxRanks});
  v.Field("dp", &p->dp, {.min = 0, .max = model::kMaxRanks});
  v.Choice("shard", &p->shard, ShardNames());
  v.Field("pp_chunks", &p->pp_chunks, {.min = 1, .max = 1024});
  v.Field("pp_group", &p->pp_group, {.min = 0, .max = 1 << 20});
  v.Field("pp_short_ends", &p->pp_short_ends);
  v.Field("fp8_gather", &p->fp8_gather);
}

void VisitSample(ConfigVisitor& v, SampleConfig* s) {
  v.Field("prompts", &s->prompts);
  v.Field("tokens", &s->tokens, {.min = 0, .max = 4096});
  v.Field("temperature", &s->temperature, {.min = 0, .max = 100});
  v.Field("top_k", &s->top_k, {.min = 0, .max = 1 << 24});
}

void VisitAll(ConfigVisitor& v, TrainConfig* c) {
  v.Field("init", &c->init);
  v.Choice("precision", &c->precision, model::PrecisionNames());
  v.Choice("numerics", &c->numerics, {"default", "invariant"});
  v.Field("seed", &c->seed, {.min = 0, .max = 9e18});
  v.Field("steps", &c->steps, {.min = 1, .max = 1e12});
  v.Section("model", [c](ConfigVisitor& s) {
    s.Field("preset", &c->model_preset);
    VisitModel(s, &c->model);
  });
  v.Section("data", [c](ConfigVisitor& s) { VisitData(s, &c->data); });
  v.Section("train", [c](ConfigVisitor& s) { VisitTrain(s, &c->train); });
  v.Section("parallel", [c](ConfigVisitor& s) { VisitParallel(s, &c->parallel); });
  v.Section("checkpoint", [c](ConfigVisitor& s) {
    s.Field("every", &c->checkpoint.every, {.min = 0, .max = 1e12});
    s.Field("keep", &c->checkpoint.keep, {.min = 0, .max = 1e6});
  });
  v.Section("sample", [c](ConfigVisitor& s) { VisitSample(s, &c->sample); });
  v.Field("tensorboard", &c->tensorboard);
}

// Tokens of a grain are summed by one rank: its rows and its chunks must be whole grains.
Status CheckGrain(const TrainConfig& c, const model::Layout& layout, const std::string& file) {
  if (c.model.ffn % c.model.heads != 0) {
    return InvalidArgumentError(file, ": numerics: invariant sums by heads: model.ffn ",
                                c.model.ffn, " is no multiple of model.heads ", c.model.heads);
  }
  const int64_t grain = c.TokenGrain();
  const int64_t chunk = c.train.seq / (layout.cp > 1 ? 2 * layout.cp : 1);
  if (chunk % grain != 0) {
    return InvalidArgumentError(file, ": train.token_grain: ", grain, " does not divide the ",
                                chunk, " tokens of a ",
                                layout.cp > 1 ? "context-parallel chunk" : "sequence");
  }
  const int64_t rows = c.train.seq / layout.cp / layout.tp;
  if (rows % grain != 0) {
    return InvalidArgumentError(file, ": train.token_grain: ", grain, " does not divide the ", rows,
                                " rows of a sequence on one rank");
  }
  return OkStatus();
}

Status CheckParallel(const TrainConfig& c, const model::Layout& layout, const std::string& file) {
  CRIA_RETURN_IF_ERROR(
      model::CheckLayout(layout, c.model, c.train.seq, StrCat(file, ": parallel")));
  if (c.parallel.fp8_gather && c.Precision() != model::Precision::kFp8Tensorwise) {
    return InvalidArgumentError(file,
                                ": parallel.fp8_gather needs precision fp8_tensorwise, whose "
                                "weights have one scale; it is ",
                                c.precision);
  }
  if (c.parallel.fp8_gather && layout.shard != model::Shard::kWeights) {
    return InvalidArgumentError(file, ": parallel.fp8_gather needs parallel.shard weights, not ",
                                c.parallel.shard);
  }
  if (!c.invariant()) return OkStatus();
  if (c.Precision() != model::Precision::kFp32) {
    return InvalidArgumentError(file, ": numerics: invariant needs precision fp32, not ",
                                c.precision);
  }
  return CheckGrain(c, layout, file);
}

// What the ranges of single fields can't say.
Status CheckTogether(const TrainConfig& c, const std::string& file) {
  CRIA_RETURN_IF_ERROR(model::Validate(c.model, StrCat(file, ": model")));
  const TrainSection& t = c.train;
  if (t.seq > c.model.max_positions) {
    return InvalidArgumentError(file, ": train.seq: ", t.seq, " is over model.max_positions ",
                                c.model.max_positions);
  }
  if (t.ramp_batch.size() != t.ramp_until.size()) {
    return InvalidArgumentError(file, ": train.ramp_batch has ", t.ramp_batch.size(),
                                " stages, train.ramp_until ", t.ramp_until.size());
  }
  if (!std::is_sorted(t.ramp_until.begin(), t.ramp_until.end(), std::less_equal<>())) {
    return InvalidArgumentError(file, ": train.ramp_until: the steps must ascend");
  }
  return CheckParallel(c, c.Layout(), file);
}

}  // namespace

int64_t TrainConfig::TokenGrain() const {
  constexpr int64_t kDefaultGrains = 16;  // of a sequence
  return train.token_grain > 0 ? train.token_grain
                               : std::max<int64_t>(1, train.seq / kDefaultGrains);
}

model::Layout TrainConfig::Layout() const {
  model::Layout layout = {.tp = static_cast<int>(parallel.tp),
                          .cp = static_cast<int>(parallel.cp),
                          .pp = static_cast<int>(parallel.pp),
                          .dp = static_cast<int>(std::max<int64_t>(1, parallel.dp)),
                          .pp_chunks = static_cast<int>(parallel.pp_chunks),
                          .pp_group = static_cast<int>(parallel.pp_group),
                          .pp_short_ends = parallel.pp_short_ends};
  for (const model::Shard shard : kShards) {
    if (parallel.shard == Name(shard)) layout.shard = shard;
  }
  return layout;
}

StatusOr<model::Layout> ResolveLayout(const TrainConfig& config, int world_size) {
  model::Layout layout = config.Layout();
  const bool free = config.parallel.dp == 0;
  const int64_t ranks = int64_t{layout.tp} * layout.cp * layout.pp;
  if (free && world_size % ranks == 0) layout.dp = static_cast<int>(world_size / ranks);
  if (ranks * layout.dp == world_size) {
    CRIA_RETURN_IF_ERROR(CheckParallel(config, layout, "the job"));
    return layout;
  }
  return InvalidArgumentError(
      "parallel: tp ", layout.tp, " x cp ", layout.cp, " x pp ", layout.pp,
      free ? StrCat(" = ", ranks, " ranks don't divide")
           : StrCat(" x dp ", layout.dp, " = ", ranks * layout.dp, " ranks are not"),
      " the job's ", world_size);
}

model::LlamaOptions TrainConfig::LlamaOptions() const {
  model::LlamaOptions options;
  options.precision = Precision();
  options.recompute = train.recompute == "full"        ? model::Recompute::kFull
                      : train.recompute == "selective" ? model::Recompute::kSelective
                                                       : model::Recompute::kNone;
  options.max_batch = std::min(train.micro_batch, train.batch);
  for (const int64_t batch : train.ramp_batch) {
    options.max_batch = std::max(options.max_batch, std::min(train.micro_batch, batch));
  }
  options.max_time = train.seq;
  options.fp8_gather = parallel.fp8_gather;
  options.token_grain = invariant() ? TokenGrain() : 0;
  options.z_loss = static_cast<float>(train.z_loss);
  return options;
}

AdamWOptions TrainConfig::AdamW() const {
  return {.beta1 = train.beta1,
          .beta2 = train.beta2,
          .eps = train.eps,
          .weight_decay = train.weight_decay,
          .clip_norm = train.clip_norm};
}

LearningRateSchedule TrainConfig::LearningRate() const {
  return {.kind = train.schedule == "wsd" ? LearningRateSchedule::Kind::kWsd
                                          : LearningRateSchedule::Kind::kCosine,
          .lr = train.lr,
          .min_lr_ratio = train.min_lr_ratio,
          .warmup = train.warmup,
          .decay_fraction = train.decay_fraction,
          .steps = steps};
}

BatchSchedule TrainConfig::Batches() const {
  return {.batch = train.batch, .ramp_batch = train.ramp_batch, .ramp_until = train.ramp_until};
}

Status CheckInitModel(const model::LlamaConfig& job, const model::LlamaConfig& init,
                      const std::string& init_path) {
  Status result = OkStatus();
  const auto check = [&](const char* key, const auto& ours, const auto& theirs) {
    if (!result.ok() || ours == theirs) return;
    result = InvalidArgumentError("model.", key, ": ", ours, "; the model to start from, ",
                                  init_path, ", has ", theirs);
  };
  check("layers", job.layers, init.layers);
  check("dim", job.dim, init.dim);
  check("heads", job.heads, init.heads);
  check("kv_heads", job.kv_heads, init.kv_heads);
  check("head_dim", job.HeadDim(), init.HeadDim());
  check("ffn", job.ffn, init.ffn);
  check("vocab", job.vocab, init.vocab);
  check("max_positions", job.max_positions, init.max_positions);
  check("norm_eps", job.norm_eps, init.norm_eps);
  check("tied_head", job.tied_head, init.tied_head);
  check("rope_theta", job.rope_theta, init.rope_theta);
  const model::RopeScaling &ours = job.rope_scaling, &theirs = init.rope_scaling;
  check("rope_scaling.type", ours.type, theirs.type);
  check("rope_scaling.factor", ours.factor, theirs.factor);
  check("rope_scaling.low_freq_factor", ours.low_freq_factor, theirs.low_freq_factor);
  check("rope_scaling.high_freq_factor", ours.high_freq_factor, theirs.high_freq_factor);
  check("rope_scaling.original_max_positions", ours.original_max_positions,
        theirs.original_max_positions);
  return result;
}

StatusOr<TrainConfig> LoadTrainConfig(const std::string& file,
                                      const std::vector<std::string>& overrides,
                                      const OpenInit& open_init) {
  CRIA_ASSIGN_OR_RETURN(const std::string path, FindConfig("jobs", file));
  CRIA_ASSIGN_OR_RETURN(ConfigFile job, ConfigFile::FromFile(path));
  for (const std::string& override_text : overrides) {
    CRIA_RETURN_IF_ERROR(job.Override(override_text));
  }
  TrainConfig config;
  std::optional<model::LlamaConfig> init;
  if (open_init && job.Has("init")) {
    CRIA_ASSIGN_OR_RETURN(const std::string init_path, job.GetString("init"));
    if (!init_path.empty()) {
      CRIA_ASSIGN_OR_RETURN(init, open_init(init_path));
      config.model = *init;
    }
  }
  if (job.Has("model.preset")) {
    CRIA_ASSIGN_OR_RETURN(const std::string preset, job.GetString("model.preset"));
    if (!preset.empty()) {
      const StatusOr<std::string> preset_path = FindConfig("models", preset);
      if (!preset_path.ok()) {
        return Annotate(preset_path.status(), StrCat(path, ": model.preset"));
      }
      CRIA_ASSIGN_OR_RETURN(const ConfigFile preset_file, ConfigFile::FromFile(*preset_path));
      CRIA_RETURN_IF_ERROR(
          preset_file.Read([&](ConfigVisitor& v) { VisitModel(v, &config.model); }));
    }
  }
  CRIA_RETURN_IF_ERROR(job.Read([&](ConfigVisitor& v) { VisitAll(v, &config); }));
  if (init) CRIA_RETURN_IF_ERROR(CheckInitModel(config.model, *init, config.init));
  CRIA_RETURN_IF_ERROR(CheckTogether(config, path));
  return config;
}

StatusOr<TrainConfig> ParseTrainConfig(const std::string& text, const std::string& name) {
  CRIA_ASSIGN_OR_RETURN(const ConfigFile file, ConfigFile::FromText(text, name));
  TrainConfig config;
  CRIA_RETURN_IF_ERROR(file.Read([&](ConfigVisitor& v) { VisitAll(v, &config); }));
  CRIA_RETURN_IF_ERROR(CheckTogether(config, name));
  return config;
}

std::string WriteTrainConfig(const TrainConfig& config) {
  TrainConfig copy = config;
  copy.model_preset = "";  // its keys are all written out
  return WriteConfig([&](ConfigVisitor& v) { VisitAll(v, &copy); });
}

StatusOr<std::string> FindConfig(const std::string& kind, const std::string& name) {
  return FindConfigFile(kind, name);
}

}  // namespace cria::trainer
