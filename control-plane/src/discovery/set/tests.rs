use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn found(name: &str, port: u16, standing: Standing) -> Found {
    let endpoint = std::net::SocketAddr::from(([10, 0, 0, 1], port));
    Found {
        key: name.to_owned(),
        replica: ReplicaConfig {
            name: name.to_owned(),
            endpoint,
            data_parallel_rank: None,
            events: String::new(),
            replay: None,
            topic: String::new(),
            metrics: String::new(),
            health: String::new(),
            api: String::new(),
        },
        standing,
    }
}

fn serving(name: &str) -> Found {
    found(name, 1, Standing::Serving)
}

fn words(commands: &[Command]) -> Vec<String> {
    let word = |command: &Command| match command {
        Command::Add(found) => format!("+{}", found.key),
        Command::Remove { key, .. } => format!("-{key}"),
        Command::Stand { key, standing } => format!("{key}:{}", standing.as_str()),
    };
    commands.iter().map(word).collect()
}

#[test]
fn one_that_is_listed_again_soon_is_as_it_was() {
    let mut set = Set::new(30_000);
    assert_eq!(
        words(&set.take(vec![serving("a"), serving("b")], 0)),
        ["+a", "+b"]
    );
    assert_eq!(words(&set.take(vec![serving("a")], 1_000)), ["b:leaving"]);
    assert_eq!(set.next_tick_ms(), Some(31_000));
    assert_eq!(words(&set.take(vec![serving("a")], 5_000)), [""; 0]);
    assert_eq!(set.listed().len(), 1);
    assert_eq!(
        words(&set.take(vec![serving("a"), serving("b")], 30_999)),
        ["b:serving"]
    );
    assert_eq!(set.next_tick_ms(), None);
    set.take(vec![serving("a")], 40_000);
    assert_eq!(words(&set.tick(69_999)), [""; 0]);
    assert_eq!(words(&set.tick(70_000)), ["-b"]);
    assert_eq!(
        words(&set.take(vec![serving("a"), serving("b")], 70_001)),
        ["+b"]
    );
}

#[test]
fn without_a_grace_it_goes_at_once_and_before_anybody_comes() {
    let mut set = Set::new(0);
    set.restore(&[serving("a"), serving("b")]);
    assert_eq!(
        words(&set.take(vec![serving("A"), serving("b")], 7)),
        ["-a", "+A"]
    );
    let moved = found("b", 2, Standing::Serving);
    assert_eq!(words(&set.take(vec![serving("A"), moved], 8)), ["-b", "+b"]);
    assert_eq!(set.next_tick_ms(), None);
}

/// Who is listed: key, port, whether it serves.
type List = Vec<(u8, u16, bool)>;

fn lists() -> impl Strategy<Value = Vec<(u64, Option<List>)>> {
    let list = prop::collection::vec((0u8..6, 1u16..3, any::<bool>()), 0..8);
    // Steps of time, with a list or without one.
    prop::collection::vec((0u64..40, prop::option::of(list)), 1..60)
}

proptest! {
    /// Who was told to come and not to go is who was listed within the grace, as last listed.
    #[test]
    fn commands_lead_to_what_is_listed(steps in lists(), grace in prop::sample::select(vec![0u64, 30])) {
        let mut set = Set::new(grace);
        // Naive: what each key was when it was last listed, and when.
        let mut last: BTreeMap<String, (Found, u64)> = BTreeMap::new();
        let mut there: BTreeMap<String, Found> = BTreeMap::new();
        let (mut now, mut listed_now) = (0, BTreeSet::new());
        let mut latest: Vec<Found> = Vec::new();
        for (pause, list) in steps {
            // Ticks come in time, as the caller sees to it.
            let until = now + pause;
            let mut commands = Vec::new();
            while let Some(due) = set.next_tick_ms().filter(|due| *due <= until) {
                now = now.max(due);
                commands.extend(set.tick(now));
            }
            now = until;
            // What is listed stays so until the next list.
            for found in &latest {
                last.insert(found.key.clone(), (found.clone(), now));
            }
            if let Some(list) = list {
                let list: Vec<Found> = list
                    .into_iter()
                    .map(|(who, port, up)| {
                        let standing = if up { Standing::Serving } else { Standing::NotReady };
                        found(&format!("k{who}"), port, standing)
                    })
                    .collect();
                // Of two with one key the last counts.
                latest = list.iter().map(|f| (f.key.clone(), f.clone())).collect::<BTreeMap<_, _>>().into_values().collect();
                listed_now = latest.iter().map(|found| found.key.clone()).collect::<BTreeSet<_>>();
                for found in &latest {
                    last.insert(found.key.clone(), (found.clone(), now));
                }
                commands.extend(set.take(list, now));
            }
            for command in commands {
                match command {
                    Command::Add(found) => prop_assert!(there.insert(found.key.clone(), found).is_none()),
                    Command::Remove { key, .. } => prop_assert!(there.remove(&key).is_some()),
                    Command::Stand { key, standing } => {
                        let found = there.get_mut(&key).expect("known");
                        prop_assert_ne!(found.standing, standing);
                        found.standing = standing;
                    }
                }
            }
            let expected: BTreeMap<String, Found> = last
                .iter()
                .filter(|(key, (_, seen))| listed_now.contains(*key) || now < seen + grace)
                .map(|(key, (found, _))| {
                    let mut found = found.clone();
                    if !listed_now.contains(key) {
                        found.standing = Standing::Leaving;
                    }
                    (key.clone(), found)
                })
                .collect();
            prop_assert_eq!(&there, &expected);
            prop_assert_eq!(set.len(), there.len());
            prop_assert_eq!(set.listed().len(), listed_now.len());
        }
    }
}
