//! Random events of several replicas against a model that keeps whole prefixes in maps.

use super::*;
use proptest::prelude::*;

const BLOCK: usize = 2;

/// A prompt's tokens so far, from the start.
type Path = Vec<u32>;

#[derive(Clone, Default)]
struct ModelReplica {
    /// hash -> (GPU copies, lower copies), whether or not the content is known.
    copies: BTreeMap<u64, (u32, u32)>,
    content: BTreeMap<u64, Path>,
    runs: Vec<(u64, Vec<u64>, Vec<u32>)>,
}

impl ModelReplica {
    fn add(&mut self, hash: u64, lower: bool) {
        let copies = self.copies.entry(hash).or_default();
        if lower { copies.1 += 1 } else { copies.0 += 1 }
    }

    fn store(&mut self, parent: Option<u64>, of: &[u64], tokens: &[u32], lower: bool) {
        for hash in of {
            self.add(*hash, lower);
        }
        let above = match parent {
            None => Path::new(),
            Some(parent) => match self.content.get(&parent) {
                Some(path) => path.clone(),
                None => {
                    self.runs.push((parent, of.to_vec(), tokens.to_vec()));
                    return;
                }
            },
        };
        self.know(above, of, tokens);
        // Runs find their places until none does.
        while let Some(at) = self
            .runs
            .iter()
            .position(|(parent, ..)| self.content.contains_key(parent))
        {
            let (parent, of, tokens) = self.runs.remove(at);
            let above = self.content[&parent].clone();
            self.know(above, &of, &tokens);
        }
    }

    fn know(&mut self, mut path: Path, of: &[u64], tokens: &[u32]) {
        for (hash, tokens) in of.iter().zip(tokens.chunks(BLOCK)) {
            path.extend(tokens);
            if self.copies.contains_key(hash) {
                self.content.entry(*hash).or_insert_with(|| path.clone());
            }
        }
    }

    fn remove(&mut self, hash: u64, lower: bool) {
        let Some(copies) = self.copies.get_mut(&hash) else {
            return;
        };
        let count = if lower { &mut copies.1 } else { &mut copies.0 };
        *count = count.saturating_sub(1);
        self.forget_empty();
    }

    fn forget_empty(&mut self) {
        self.copies.retain(|_, copies| *copies != (0, 0));
        self.content
            .retain(|hash, _| self.copies.contains_key(hash));
    }

    /// Nothing waits for its content any more.
    fn forget_runs(&mut self) {
        if self.copies.len() == self.content.len() {
            self.runs.clear();
        }
    }

    fn clear(&mut self) {
        self.copies.values_mut().for_each(|copies| copies.0 = 0);
        self.forget_empty();
    }

    /// Prefixes that are there: in GPU, or in any tier.
    fn resident(&self, gpu_only: bool) -> BTreeSet<&Path> {
        let held = self
            .content
            .iter()
            .filter(|(hash, _)| !gpu_only || self.copies[hash].0 > 0);
        held.map(|(_, path)| path).collect()
    }

    /// Prefixes that are there with all that comes before.
    fn whole(&self, gpu_only: bool) -> Vec<&Path> {
        let resident = self.resident(gpu_only);
        let is_whole = |path: &&&Path| {
            (BLOCK..=path.len())
                .step_by(BLOCK)
                .all(|length| resident.contains(&path[..length].to_vec()))
        };
        resident.iter().filter(is_whole).copied().collect()
    }
}

/// The prompts: paths in a tree in which every block has two forms. `choices`: one bit a block.
fn tokens_of(choices: u32, blocks: usize) -> Path {
    (0..blocks)
        .flat_map(|at| {
            // What was chosen before does not change the tokens, only the path.
            let form = choices >> at & 1;
            let first = u32::try_from(at).unwrap() * 10 + form;
            // The first block's forms are two tokenisations of one text.
            if at == 0 && form == 1 {
                [1000, 2000]
            } else if at == 0 {
                [0, 500]
            } else {
                [first, first + 5]
            }
        })
        .collect()
}

/// A replica's hash of a prefix. Replicas 0 and 1 agree, as new engines do.
fn hash_of(replica: u16, choices: u32, blocks: usize) -> u64 {
    let seed = if replica == 2 { 1 << 40 } else { 0 };
    let choices = choices & ((1 << blocks) - 1);
    (seed + (u64::try_from(blocks).unwrap() << 20) + u64::from(choices) + 1)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[derive(Clone, Debug)]
enum Step {
    Store {
        replica: u16,
        choices: u32,
        from: usize,
        to: usize,
        lower: bool,
    },
    Placeholder {
        replica: u16,
        choices: u32,
        blocks: usize,
    },
    Remove {
        replica: u16,
        choices: u32,
        blocks: Vec<usize>,
        lower: bool,
    },
    Evict {
        replica: u16,
        choices: u32,
        from: usize,
    },
    Clear {
        replica: u16,
    },
    Drop {
        replica: u16,
    },
    Drain,
    Reload,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let replica = 0_u16..3;
    let choices = prop_oneof![3 => 0_u32..4, 1 => 0_u32..4096];
    let store = (
        replica.clone(),
        choices.clone(),
        0_usize..12,
        1_usize..8,
        prop::bool::weighted(0.1),
    )
        .prop_map(|(replica, choices, from, length, lower)| {
            let from = from.saturating_sub(5);
            Step::Store {
                replica,
                choices,
                from,
                to: (from + length).min(12),
                lower,
            }
        });
    let step = prop_oneof![
        12 => store,
        1 => (replica.clone(), choices.clone(), 1_usize..12)
            .prop_map(|(replica, choices, blocks)| Step::Placeholder { replica, choices, blocks }),
        4 => (replica.clone(), choices.clone(), prop::collection::vec(1_usize..13, 1..4), prop::bool::weighted(0.2))
            .prop_map(|(replica, choices, blocks, lower)| Step::Remove { replica, choices, blocks, lower }),
        3 => (replica.clone(), choices, 1_usize..12)
            .prop_map(|(replica, choices, from)| Step::Evict { replica, choices, from }),
        1 => replica.clone().prop_map(|replica| Step::Clear { replica }),
        1 => replica.prop_map(|replica| Step::Drop { replica }),
        3 => Just(Step::Drain),
        1 => Just(Step::Reload),
    ];
    prop::collection::vec(step, 1..80)
}

fn run(fixture: &mut Fixture, models: &mut [ModelReplica], step: &Step) {
    match step.clone() {
        Step::Store {
            replica,
            choices,
            from,
            to,
            lower,
        } => {
            let of: Vec<u64> = (from + 1..=to)
                .map(|blocks| hash_of(replica, choices, blocks))
                .collect();
            let tokens = &tokens_of(choices, to)[from * BLOCK..];
            let parent = (from > 0).then(|| hash_of(replica, choices, from));
            let medium = if lower { "cpu" } else { "Gpu" };
            fixture.store(
                replica,
                Stored {
                    medium: Some(medium.into()),
                    ..store(&of, parent, tokens)
                },
            );
            models[usize::from(replica)].store(parent, &of, tokens, lower);
        }
        Step::Placeholder {
            replica,
            choices,
            blocks,
        } => {
            let hash = hash_of(replica, choices, blocks);
            fixture.apply(replica, vec![placeholder(&[hash])]);
            models[usize::from(replica)].add(hash, true);
        }
        Step::Remove {
            replica,
            choices,
            blocks,
            lower,
        } => {
            let of: Vec<u64> = blocks
                .iter()
                .map(|blocks| hash_of(replica, choices, *blocks))
                .collect();
            fixture.apply(
                replica,
                vec![remove_from(&of, if lower { "STORAGE" } else { "GPU" })],
            );
            of.iter()
                .for_each(|hash| models[usize::from(replica)].remove(*hash, lower));
        }
        Step::Evict {
            replica,
            choices,
            from,
        } => {
            let of: Vec<u64> = (from..=12)
                .rev()
                .map(|blocks| hash_of(replica, choices, blocks))
                .collect();
            fixture.apply(replica, of.iter().map(|hash| remove(&[*hash])).collect());
            of.iter()
                .for_each(|hash| models[usize::from(replica)].remove(*hash, false));
        }
        Step::Clear { replica } => {
            fixture.apply(replica, vec![KvEvent::Cleared]);
            models[usize::from(replica)].clear();
        }
        Step::Drop { replica } => {
            fixture.index.drop_replica(r(replica));
            models[usize::from(replica)] = ModelReplica::default();
        }
        Step::Drain => {
            fixture.drain();
        }
        Step::Reload => reload(fixture, models),
    }
}

/// The control plane restarts: what waits for its parent is lost, nothing else.
fn reload(fixture: &mut Fixture, models: &mut [ModelReplica]) {
    let mut bytes = Vec::new();
    fixture
        .index
        .write_snapshot(&mut bytes, |replica| Some(replica.0.to_string()))
        .unwrap();
    fixture
        .index
        .read_snapshot(&mut &*bytes, |name| Some(r(name.parse().unwrap())))
        .unwrap();
    for model in models {
        model.runs.clear();
        let content = &model.content;
        model.copies.retain(|hash, _| content.contains_key(hash));
    }
}

fn credits_of(models: &[ModelReplica]) -> BTreeMap<(BlockHash, ReplicaIndex), bool> {
    let mut credits = BTreeMap::new();
    for (replica, model) in (0..).zip(models) {
        for gpu in [false, true] {
            for path in model.whole(gpu) {
                for hash in text_hashes(path, None, None) {
                    *credits.entry((hash, r(replica))).or_default() |= gpu;
                }
            }
        }
    }
    credits
}

/// An index that is told only what is left has the same to say.
fn assert_equals_rebuilt(fixture: &mut Fixture, models: &[ModelReplica]) {
    let mut rebuilt = Fixture::new(config());
    for (replica, model) in (0..).zip(models) {
        let mut known: Vec<(&u64, &Path)> = model.content.iter().collect();
        known.sort_by_key(|(_, path)| path.len());
        for (hash, path) in known {
            let (gpu, lower) = model.copies[hash];
            // Each block with its ancestors, which then go again unless they are held.
            let ancestors: Vec<u64> = (1..path.len() / BLOCK)
                .map(|n| 1 << 63 | hash ^ u64::try_from(n).unwrap() << 50)
                .collect();
            let of: Vec<u64> = ancestors.iter().copied().chain([*hash]).collect();
            let medium = if gpu > 0 { "GPU" } else { "CPU" };
            rebuilt.store(
                replica,
                Stored {
                    medium: Some(medium.into()),
                    ..store(&of, None, path)
                },
            );
            rebuilt.apply(
                replica,
                ancestors
                    .iter()
                    .map(|hash| remove_from(&[*hash], medium))
                    .collect(),
            );
            if gpu > 0 && lower > 0 {
                rebuilt.apply(replica, vec![placeholder(&[*hash])]);
            }
        }
    }
    assert_eq!(fixture.credits(), rebuilt.credits());
    let (ours, theirs) = (fixture.index.stats(), rebuilt.index.stats());
    assert_eq!(
        (ours.nodes, ours.blocks, ours.held),
        (theirs.nodes, theirs.blocks, theirs.held)
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn the_index_equals_the_model(steps in steps()) {
        let mut fixture = Fixture::new(config());
        let mut models = vec![ModelReplica::default(); 3];
        for step in &steps {
            run(&mut fixture, &mut models, step);
            models.iter_mut().for_each(ModelReplica::forget_runs);
        }
        let credits: BTreeMap<_, bool> =
            fixture.credits().into_iter().map(|(key, (gpu, _))| (key, gpu)).collect();
        prop_assert_eq!(credits, credits_of(&models));
        let stats = fixture.index.stats();
        let copies: usize = models.iter().map(|model| model.copies.len()).sum();
        prop_assert_eq!(stats.held + stats.pending, copies);
        assert_equals_rebuilt(&mut fixture, &models);
        for replica in 0..3 {
            fixture.index.drop_replica(r(replica));
        }
        prop_assert_eq!(fixture.credits(), Credits::new());
        let stats = fixture.index.stats();
        prop_assert_eq!((stats.nodes, stats.blocks, stats.groups, stats.holdings, stats.held, stats.pending), (0, 0, 0, 0, 0, 0));
    }
}
