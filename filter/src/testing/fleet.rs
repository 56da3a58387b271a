//! A control plane in memory: one pool, a table, and answers to polls as the real one gives them.

use prefix_picker_core::blocks::{Family, Namespace, PoolKey, hash_ids, hash_text, seed};
use prefix_picker_core::ids::{BlockHash, Epoch, ReplicaIndex};
use prefix_picker_core::prompt::{Capability, Profile};
use prefix_picker_core::sync::{
    Answer, Head, Pace, Poll, PoolHead, ProfileRecord, ReplicaHead, ReplicaState, TableUpdate,
};
use prefix_picker_core::table::{GroupSpec, Holder, RunSpec, TableStore, encode_group};

pub(crate) const MODEL: &str = "m";
pub(crate) const CLUSTER: &str = "pool";
/// Tokens that the fleet says every block has.
pub(crate) const TOKENS_PER_BLOCK: u32 = 64;

pub(crate) struct Fleet {
    pub(crate) head: Head,
    pub(crate) store: TableStore,
    pub(crate) profile: Profile,
    /// Largest answer, so that loads take several.
    pub(crate) budget_bytes: usize,
}

impl Fleet {
    pub(crate) fn new(epoch: u64, page_count: u32, replicas: u16) -> Self {
        let profile = Profile {
            model: MODEL.to_owned(),
            chat_template: Some(
                "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}".to_owned(),
            ),
            ..Profile::default()
        };
        let store = TableStore::with_pages(Epoch(epoch), 4096, page_count);
        let replica = |r: u16| ReplicaHead {
            index: ReplicaIndex(r),
            pool: 0,
            endpoint: format!("10.0.0.{}:8000", r + 1),
            dp_rank: None,
            state: ReplicaState::Ready,
            running: 0,
            waiting: 0,
            kv_usage_permille: 0,
            pace: Pace::default(),
        };
        let head = Head {
            epoch: Epoch(epoch),
            generation: store.generation(),
            page_count: store.page_count(),
            seq: 0,
            version: 1,
            pools: vec![PoolHead {
                name: "p".to_owned(),
                key: PoolKey::derive(b"secret", "p"),
                profile_hash: profile.hash(),
                models: vec![MODEL.to_owned()],
                clusters: vec![CLUSTER.to_owned()],
                block_size: 16,
                bytes_per_token_milli: 4_000,
                token_ids: true,
                loras: Vec::new(),
                full_reports: false,
            }],
            replicas: (0..replicas).map(replica).collect(),
        };
        Self {
            head,
            store,
            profile,
            budget_bytes: 1 << 20,
        }
    }

    /// `endpoints` with `ranks` each, in this order: 10.0.0.1:8000#0, 10.0.0.1:8000#1, ...
    pub(crate) fn of_ranks(endpoints: u16, ranks: u16) -> Self {
        let mut fleet = Self::new(1, 8, endpoints * ranks);
        for replica in &mut fleet.head.replicas {
            let number = replica.index.0;
            replica.endpoint = format!("10.0.0.{}:8000", number / ranks + 1);
            replica.dp_rank = Some(number % ranks);
        }
        fleet
    }

    pub(crate) fn set_profile(&mut self, profile: Profile) {
        self.head.pools[0].profile_hash = profile.hash();
        self.head.version += 1;
        self.profile = profile;
    }

    /// A profile that can do nothing exactly.
    pub(crate) fn predicted_only() -> Profile {
        let why = Capability::PredictedOnly {
            why: "test".to_owned(),
        };
        Profile {
            chat: why.clone(),
            completions: why.clone(),
            token_ids: why,
            ..Profile::default()
        }
    }

    fn namespace_seed(
        &self,
        family: Family,
        (lora, salt): (Option<&str>, Option<&str>),
    ) -> prefix_picker_core::blocks::Seed {
        let pool = &self.head.pools[0];
        let profile_hash = self.profile.seed_hash();
        seed(
            &pool.key,
            &Namespace {
                family,
                profile_hash,
                lora,
                salt,
            },
        )
    }

    /// A replica holds all whole blocks of a text; returns their number.
    pub(crate) fn holds_text(&mut self, replica: u16, text: &str, salt: Option<&str>) -> u32 {
        let hashes = hash_text(
            self.namespace_seed(Family::Text, (None, salt)),
            text.as_bytes(),
            1 << 15,
        );
        self.holds(replica, &hashes)
    }

    /// The same, computed with an adapter.
    pub(crate) fn holds_lora(&mut self, replica: u16, lora: &str, text: &str) -> u32 {
        let seed = self.namespace_seed(Family::Text, (Some(lora), None));
        self.holds(replica, &hash_text(seed, text.as_bytes(), 1 << 15))
    }

    /// The same for token ids.
    pub(crate) fn holds_ids(&mut self, replica: u16, ids: &[u32]) -> u32 {
        let hashes = hash_ids(
            self.namespace_seed(Family::TokenIds, (None, None)),
            ids,
            1 << 15,
        );
        self.holds(replica, &hashes)
    }

    fn holds(&mut self, replica: u16, hashes: &[BlockHash]) -> u32 {
        let mut base_tokens = 0;
        for group in hashes.chunks(32) {
            let len = u8::try_from(group.len()).unwrap();
            let tokens = (1..=u32::from(len)).map(|n| base_tokens + n * TOKENS_PER_BLOCK);
            let run = RunSpec {
                start: 0,
                hashes: group.to_vec(),
                tokens: tokens.collect(),
                holders: vec![Holder {
                    replica: ReplicaIndex(replica),
                    gpu: len,
                    any: len,
                }],
            };
            let spec = GroupSpec {
                base_tokens,
                split: None,
                runs: vec![run],
            };
            self.store.upsert(group[0], encode_group(&spec).unwrap());
            base_tokens += u32::from(len) * TOKENS_PER_BLOCK;
        }
        u32::try_from(hashes.len()).unwrap()
    }

    /// What the control plane answers, encoded.
    pub(crate) fn answer(&self, poll: &Poll) -> Vec<u8> {
        let (epoch, generation) = (self.store.epoch(), self.store.generation());
        let have = poll.have.filter(|h| h.epoch == epoch.0);
        let loading = poll.loading.filter(|l| l.epoch == epoch.0);
        let changes = have
            .filter(|h| h.generation == generation)
            .and_then(|h| Some((h.seq, self.store.changes_since(h.seq, self.budget_bytes)?)));
        let table = match changes {
            Some((_, changes)) if changes.pages.is_empty() => TableUpdate::None,
            Some((from_seq, c)) => TableUpdate::Delta {
                from_seq,
                to_seq: c.to_seq,
                more: c.more,
                pages: c.pages,
            },
            None => {
                let going_on = loading.filter(|l| l.generation == generation);
                let (start_seq, from) =
                    going_on.map_or((self.store.seq(), 0), |l| (l.start_seq, l.next_page));
                let slice = self.store.load(from, self.budget_bytes);
                TableUpdate::Load {
                    start_seq,
                    next_page: slice.next,
                    pages: slice.pages,
                }
            }
        };
        let knows_head =
            (have.is_some() || loading.is_some()) && poll.head_version == self.head.version;
        let mut head = self.head.clone();
        (head.generation, head.page_count) = (generation, self.store.page_count());
        head.seq = self.store.seq();
        let hash = self.profile.hash();
        let profile = || ProfileRecord {
            hash,
            json: serde_json::to_vec(&self.profile).unwrap(),
        };
        let answer = Answer {
            epoch,
            generation,
            page_count: self.store.page_count(),
            table,
            head: (!knows_head).then(|| head.encode().unwrap()),
            profiles: if poll.profiles.contains(&hash) {
                vec![]
            } else {
                vec![profile()]
            },
        };
        answer.encode().unwrap()
    }
}
