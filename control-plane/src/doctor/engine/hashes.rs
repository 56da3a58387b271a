//! The engine's block hashes, recomputed: a sign that events are read as they are meant, and that
//! engines share a seed.

use super::{Subject, caching, version};
use crate::block_hash::{Algorithm, BlockHasher, DEFAULT_SEED, Value};
use crate::doctor::item::Item;
use crate::doctor::probe::Seen;
use crate::events::Stored;

const ID: &str = "engine.hashes";
/// Values of `PYTHONHASHSEED` that people use.
const COMMON_SEEDS: [&str; 4] = ["0", "42", "1", "random"];

pub(super) fn judge(subject: &Subject<'_>, seen: &Seen) -> Item {
    let name = &subject.replica.name;
    let stored = seen.requests.as_ref().and_then(|r| r.stored.as_ref());
    let Some(stored) = stored else {
        return Item::skipped(ID, name, "no event of ours was heard");
    };
    let algorithm = caching::config_label(subject, seen, "prefix_caching_hash_algo");
    let algorithm_name = algorithm.unwrap_or("sha256");
    let Some(algorithm) = Algorithm::of_name(algorithm_name) else {
        return Item::skipped(ID, name, format!("{algorithm_name} is not known here"));
    };
    if stored.bigram {
        return Item::skipped(
            ID,
            name,
            "hashes over pairs of tokens (SGLang) are not recomputed",
        );
    }
    let known = subject.python_hash_seed;
    let seeds = [DEFAULT_SEED].into_iter().chain(known).chain(COMMON_SEEDS);
    let mut seeds = seeds.filter(|seed| is_seed(algorithm, seed, stored));
    match (seeds.next(), known) {
        (Some(DEFAULT_SEED), None) => Item::ok(
            ID,
            name,
            format!("{algorithm_name}, vLLM's own seed: recomputed"),
        ),
        (Some(seed), Some(known)) if seed == known => Item::ok(
            ID,
            name,
            format!("{algorithm_name}, PYTHONHASHSEED={seed}: recomputed"),
        ),
        (Some(DEFAULT_SEED), Some(known)) => Item::warn(
            ID,
            name,
            "the engine has no PYTHONHASHSEED",
            format!(
                "set PYTHONHASHSEED={known} as for the others: engines that share a KV store must have the same"
            ),
        ),
        (Some(seed), _) => Item::warn(
            ID,
            name,
            format!("{algorithm_name}, PYTHONHASHSEED={seed}"),
            "routing does not need it. Engines that share a KV store must all have the same; tell it by --python-hash-seed",
        ),
        (None, _) if random_root(algorithm, seen.version.as_deref()) && known.is_none() => {
            Item::skipped(
                ID,
                name,
                format!(
                    "{algorithm_name} begins at random here unless PYTHONHASHSEED is set: not recomputed, and not needed"
                ),
            )
        }
        (None, _) => Item::warn(
            ID,
            name,
            format!("{algorithm_name}: the announced hashes are not those of vLLM's own seed"),
            "routing does not need them. If the engine has a PYTHONHASHSEED, tell it by --python-hash-seed; engines that \
             share a KV store must all have the same",
        ),
    }
}

/// Whether the hashes begin at random where no seed is set.
fn random_root(algorithm: Algorithm, version: Option<&str>) -> bool {
    let xx = matches!(algorithm, Algorithm::Xxhash | Algorithm::XxhashCbor);
    let old = version.and_then(version::parts);
    xx || old.is_none_or(|(major, minor)| major == 0 && minor < 29)
}

fn is_seed(algorithm: Algorithm, seed: &str, stored: &Stored) -> bool {
    let mut hasher = BlockHasher::new(algorithm, seed);
    let mut parent = hasher.none_hash();
    let size = stored.block_size as usize;
    let ahead = stored.lookahead as usize;
    let mut following = stored.lookahead_tokens.chunks_exact(ahead.max(1));
    let blocks = stored.tokens.chunks_exact(size.max(1));
    blocks.len() == stored.hashes.len()
        && blocks.zip(&stored.hashes).all(|(tokens, announced)| {
            let extra = match following.next() {
                Some(tokens) if ahead > 0 => {
                    let tokens = tokens.iter().map(|token| Value::Int(i64::from(*token)));
                    Value::Tuple(std::iter::once(Value::None).chain(tokens).collect())
                }
                _ => Value::None,
            };
            parent = hasher.block(&parent, tokens, extra);
            parent.low() == announced.low
        })
}
