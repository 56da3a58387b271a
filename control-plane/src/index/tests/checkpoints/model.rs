//! Random events against a model that counts places in the plainest way.

use super::*;
use proptest::prelude::*;

/// Tokens of an engine block in the random events.
const BLOCK: usize = 2;
/// Blocks of the longest prompt: more than one group of ours.
const LONGEST: usize = 160;
/// Blocks of a lower tier's chunk.
const CHUNK: usize = 4;

/// A prompt that leaves the common one at `branch`.
fn tokens_of(branch: usize, blocks: usize) -> Vec<u32> {
    (0..blocks)
        .flat_map(|at| {
            let first = 4 * u32::try_from(at).unwrap() + if at < branch { 0 } else { 2 };
            [first, first + 1]
        })
        .collect()
}

fn hash_of(branch: usize, blocks: usize) -> u64 {
    (u64::try_from(branch.min(blocks)).unwrap() << 16 | u64::try_from(blocks).unwrap())
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[derive(Clone, Debug)]
enum Step {
    /// All of a prompt's blocks.
    Store {
        replica: usize,
        branch: usize,
        blocks: usize,
    },
    States {
        replica: usize,
        group: u32,
        branch: usize,
        at: Vec<usize>,
    },
    RemoveStates {
        replica: usize,
        group: u32,
        branch: usize,
        at: Vec<usize>,
    },
    /// The prompt's end leaves GPU memory, once.
    Evict {
        replica: usize,
        branch: usize,
        from: usize,
    },
    /// A chunk of replica 2, where all its blocks are known.
    Offload {
        branch: usize,
        chunk: usize,
    },
    Clear {
        replica: usize,
    },
    Drop {
        replica: usize,
    },
    Drain,
    Reload,
}

#[derive(Default)]
struct Model {
    /// hash -> branch, blocks, copies in GPU memory and below.
    held: BTreeMap<u64, (usize, usize, u32, u32)>,
    groups: BTreeSet<u32>,
    states: BTreeMap<(u32, u64), u32>,
    has_chunks: bool,
}

impl Model {
    fn forget_empty(&mut self) {
        self.held
            .retain(|_, (_, _, gpu, lower)| (*gpu, *lower) != (0, 0));
        self.states.retain(|_, copies| *copies > 0);
    }

    /// How many of a prompt's first blocks are held: in GPU, in any tier.
    fn depth(&self, branch: usize) -> (usize, usize) {
        let held = |blocks: &usize| self.held.get(&hash_of(branch, *blocks));
        let gpu = (1..=LONGEST)
            .take_while(|blocks| held(blocks).is_some_and(|held| held.2 > 0))
            .count();
        let any = (1..=LONGEST)
            .take_while(|blocks| held(blocks).is_some())
            .count();
        (gpu, if self.groups.is_empty() { any } else { gpu })
    }

    /// Tokens up to the last place in the first `blocks` up to which they can be used.
    fn usable(&self, branch: usize, blocks: usize) -> usize {
        let (gpu, _) = self.depth(branch);
        let is_place = |blocks: &usize| {
            let hash = hash_of(branch, *blocks);
            let has = |group: &u32| self.states.contains_key(&(*group, hash));
            if self.groups.is_empty() {
                *blocks <= gpu || !self.has_chunks || blocks.is_multiple_of(CHUNK)
            } else {
                self.groups.iter().all(has)
            }
        };
        (1..=blocks).rev().find(is_place).unwrap_or(0) * BLOCK
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let branch = || prop_oneof![2 => Just(LONGEST), 2 => Just(40_usize), 1 => Just(17_usize), 1 => Just(0_usize)];
    let (replica, stateful) = (0_usize..3, 0_usize..2);
    let at = || prop::collection::vec(1..=LONGEST, 1..6);
    let step = prop_oneof![
        6 => (replica.clone(), branch(), 1..=LONGEST)
            .prop_map(|(replica, branch, blocks)| Step::Store { replica, branch, blocks }),
        8 => (stateful.clone(), 0_u32..2, branch(), at())
            .prop_map(|(replica, group, branch, at)| Step::States { replica, group, branch, at }),
        3 => (stateful, 0_u32..2, branch(), at())
            .prop_map(|(replica, group, branch, at)| Step::RemoveStates { replica, group, branch, at }),
        3 => (replica.clone(), branch(), 1..=LONGEST)
            .prop_map(|(replica, branch, from)| Step::Evict { replica, branch, from }),
        6 => (branch(), 0..LONGEST / CHUNK).prop_map(|(branch, chunk)| Step::Offload { branch, chunk }),
        1 => replica.clone().prop_map(|replica| Step::Clear { replica }),
        1 => replica.prop_map(|replica| Step::Drop { replica }),
        3 => Just(Step::Drain),
        1 => Just(Step::Reload),
    ];
    prop::collection::vec(step, 1..60)
}

fn run(fixture: &mut Fixture, models: &mut [Model], step: &Step) {
    match step.clone() {
        Step::Store {
            replica,
            branch,
            blocks,
        } => {
            let of: Vec<u64> = (1..=blocks).map(|blocks| hash_of(branch, blocks)).collect();
            let event = attention(&of, None, &tokens_of(branch, blocks));
            fixture.store(u16::try_from(replica).unwrap(), event);
            for (blocks, hash) in (1..).zip(of) {
                let entry = models[replica]
                    .held
                    .entry(hash)
                    .or_insert((branch, blocks, 0, 0));
                entry.2 += 1;
            }
        }
        Step::States {
            replica,
            group,
            branch,
            at,
        } => {
            let of: Vec<u64> = at.iter().map(|at| hash_of(branch, *at)).collect();
            let event = states(group, &of, &tokens_of(branch, LONGEST), BLOCK);
            fixture.apply(u16::try_from(replica).unwrap(), vec![event]);
            models[replica].groups.insert(group);
            for hash in of {
                *models[replica].states.entry((group, hash)).or_default() += 1;
            }
        }
        Step::RemoveStates {
            replica,
            group,
            branch,
            at,
        } => {
            // A group that was never heard of is not known to keep states.
            if !models[replica].groups.contains(&group) {
                return;
            }
            let of: Vec<u64> = at.iter().map(|at| hash_of(branch, *at)).collect();
            fixture.apply(
                u16::try_from(replica).unwrap(),
                vec![remove_states(group, &of)],
            );
            for hash in of {
                if let Some(copies) = models[replica].states.get_mut(&(group, hash)) {
                    *copies = copies.saturating_sub(1);
                }
            }
        }
        Step::Evict {
            replica,
            branch,
            from,
        } => {
            let of: Vec<u64> = (from..=LONGEST)
                .rev()
                .map(|blocks| hash_of(branch, blocks))
                .collect();
            let removes = of.iter().map(|hash| remove(&[*hash])).collect();
            fixture.apply(u16::try_from(replica).unwrap(), removes);
            for hash in of {
                if let Some(held) = models[replica].held.get_mut(&hash) {
                    held.2 = held.2.saturating_sub(1);
                }
            }
        }
        Step::Offload {
            branch,
            chunk: number,
        } => {
            let blocks = number * CHUNK + 1..=(number + 1) * CHUNK;
            let of: Vec<u64> = blocks.map(|blocks| hash_of(branch, blocks)).collect();
            if of.iter().all(|hash| models[2].held.contains_key(hash)) {
                let tokens = tokens_of(branch, LONGEST);
                let from = number * CHUNK * BLOCK;
                fixture.store(2, chunk(&of, &tokens[from..from + CHUNK * BLOCK]));
                of.iter()
                    .for_each(|hash| models[2].held.get_mut(hash).unwrap().3 += 1);
                models[2].has_chunks = true;
            }
        }
        Step::Clear { replica } => {
            fixture.apply(u16::try_from(replica).unwrap(), vec![KvEvent::Cleared]);
            models[replica]
                .held
                .values_mut()
                .for_each(|held| held.2 = 0);
            models[replica].states.clear();
        }
        Step::Drop { replica } => {
            fixture
                .index
                .drop_replica(r(u16::try_from(replica).unwrap()));
            models[replica] = Model::default();
        }
        Step::Drain => {
            fixture.drain();
        }
        Step::Reload => {
            let mut bytes = Vec::new();
            let name_of = |replica: ReplicaIndex| Some(replica.0.to_string());
            fixture.index.write_snapshot(&mut bytes, name_of).unwrap();
            let named = |name: &str| Some(r(name.parse().unwrap()));
            fixture.index.read_snapshot(&mut &*bytes, named).unwrap();
        }
    }
    models.iter_mut().for_each(Model::forget_empty);
}

/// A block of ours: its hash, the engine block that it ends in, and tokens up to its end.
type Ours = (BlockHash, usize, u32);

/// Each branch's blocks.
fn ours() -> &'static BTreeMap<usize, Vec<Ours>> {
    static OURS: LazyLock<BTreeMap<usize, Vec<Ours>>> = LazyLock::new(|| {
        let of = |branch| {
            let tokens = tokens_of(branch, LONGEST);
            let mut plain = Fixture::new(config());
            let hashes: Vec<u64> = (1..=LONGEST)
                .map(|blocks| hash_of(branch, blocks))
                .collect();
            plain.store(0, store(&hashes, None, &tokens));
            let credits = plain.credits();
            let hashes = text_hashes(&tokens, None, None);
            let ends_in = |at: usize| {
                let cut = |blocks: &usize| text_hashes(&tokens[..blocks * BLOCK], None, None);
                (1..=LONGEST).find(|blocks| cut(blocks).len() > at)
            };
            (0..)
                .zip(hashes)
                .map(|(at, hash)| (hash, ends_in(at).unwrap(), credits[&(hash, r(0))].1))
                .collect()
        };
        [LONGEST, 40, 17, 0]
            .map(|branch| (branch, of(branch)))
            .into()
    });
    &OURS
}

fn expected(models: &[Model]) -> Credits {
    let mut credits = Credits::new();
    // A block that ends where prompts part ends in an engine block of each.
    let mut least: BTreeMap<BlockHash, usize> = BTreeMap::new();
    for (branch, blocks) in ours() {
        for (hash, ends_in, raw) in blocks {
            for (replica, model) in models.iter().enumerate() {
                let (gpu, any) = model.depth(*branch);
                if any < *ends_in {
                    continue;
                }
                let worth = model.usable(*branch, *ends_in).min(*raw as usize);
                let least = least.entry(*hash).or_insert(worth);
                *least = worth.min(*least);
                let key = (*hash, r(u16::try_from(replica).unwrap()));
                credits.entry(key).or_insert((false, 0)).0 |= gpu >= *ends_in;
            }
        }
    }
    for ((hash, _), credit) in &mut credits {
        credit.1 = u32::try_from(least[hash]).unwrap();
    }
    credits
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]
    #[test]
    fn what_is_held_is_worth_what_the_model_says(steps in steps()) {
        let mut fixture = Fixture::new(config());
        let mut models: [Model; 3] = Default::default();
        for step in &steps {
            run(&mut fixture, &mut models, step);
            if matches!(step, Step::Drain | Step::Reload) {
                prop_assert_eq!(fixture.credits(), expected(&models));
            }
        }
        prop_assert_eq!(fixture.credits(), expected(&models));
        for replica in 0..3 {
            fixture.index.drop_replica(r(replica));
        }
        fixture.drain();
        prop_assert_eq!(fixture.index.stats().nodes, 0);
    }
}
