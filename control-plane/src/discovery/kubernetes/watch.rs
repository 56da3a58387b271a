//! One watch: kube's, with pauses after failures, and begun anew where kube's would never end.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use kube::api::Api;
use kube::core::{ApiResource, Object};
use kube::runtime::watcher::{self, Event, watcher};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::client::Cluster;

/// How long one watch lasts, in seconds: a dead connection is noticed 5 s after it.
const WATCH_S: u32 = 60;
/// Pauses after failures in a row: each twice the last.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(10);

type Events<K> = BoxStream<'static, watcher::Result<Event<K>>>;

/// See the module.
pub(super) struct Watch<K> {
    begin: Box<dyn Fn() -> Events<K> + Send>,
    events: Events<K>,
    failures: u32,
    not_before: Option<Instant>,
}

impl<P, U> Watch<Object<P, U>>
where
    P: Clone + std::fmt::Debug + Serialize + DeserializeOwned + Send + Sync + 'static,
    U: Clone + Default + std::fmt::Debug + Serialize + DeserializeOwned + Send + Sync + 'static,
{
    /// Watches all objects that `config` selects.
    pub(super) fn new(cluster: &Cluster, resource: &ApiResource, config: watcher::Config) -> Self {
        let api: Api<Object<P, U>> = cluster.api(resource);
        let config = config.timeout(WATCH_S);
        let begin = move || watcher(api.clone(), config.clone()).boxed();
        Self {
            events: begin(),
            begin: Box::new(begin),
            failures: 0,
            not_before: None,
        }
    }
}

impl<K> Watch<K> {
    /// What comes next; never ends. Nothing is lost where it is dropped before it is ready.
    pub(super) async fn next(&mut self) -> watcher::Result<Event<K>> {
        if let Some(at) = self.not_before {
            tokio::time::sleep_until(at).await;
            self.not_before = None;
        }
        let Some(event) = self.events.next().await else {
            // A watch never ends.
            return std::future::pending().await;
        };
        match &event {
            // These come before anything has been asked, or while the list is not whole.
            Ok(Event::Init | Event::InitApply(_)) => {}
            Ok(_) => self.failures = 0,
            Err(error) => {
                if is_too_old(error) {
                    self.events = (self.begin)();
                }
                self.not_before = Some(Instant::now() + pause(self.failures));
                self.failures += 1;
            }
        }
        event
    }
}

fn pause(failures: u32) -> Duration {
    PAUSE_MIN
        .saturating_mul(1 << failures.min(8))
        .min(PAUSE_MAX)
}

/// The API server no longer knows the version to watch from. As an event kube takes that for what it is;
/// as the answer's status (kube-runtime 5.0) it asks for the same version for ever.
fn is_too_old(error: &watcher::Error) -> bool {
    matches!(
        error,
        watcher::Error::WatchStartFailed(kube::Error::Api(status)) if status.code == 410
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow() {
        let ms: Vec<_> = [0, 1, 2, 3, 4, 5, 9, u32::MAX]
            .map(|failures| pause(failures).as_millis())
            .to_vec();
        assert_eq!(
            ms,
            [500, 1_000, 2_000, 4_000, 8_000, 10_000, 10_000, 10_000]
        );
    }
}
