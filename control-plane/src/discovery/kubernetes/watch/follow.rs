//! How a watch goes on: lists, events, failures and the pauses after them.

use std::time::Duration;

use futures_util::StreamExt;
use kube::api::{ListParams, WatchParams};
use kube::core::Status;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::codec::LinesCodecError;

use super::{Event, Told};
use crate::chain::chain;
use crate::discovery::Kind;
use crate::discovery::kubernetes::ask::{Asked, Refused, is_eof, shortened};
use crate::discovery::kubernetes::object::{Named, read};

/// How long one watch lasts, in seconds.
pub(super) const WATCH_S: u32 = 60;
/// A watch that says nothing for so long, beyond its end, is dead.
const SILENT: Duration = Duration::from_secs(75);
/// Objects of one page of a list, and pages of one list: a cluster has 150,000 pods at most.
pub(super) const PAGE: u32 = 500;
const PAGES_MAX: u32 = 1_000;
/// How long a page may take, and a list: the API server forgets a list's version after 5 minutes.
const PAGE_TIME: Duration = Duration::from_secs(60);
const LIST_TIME: Duration = Duration::from_secs(300);
/// Pauses after failures in a row: each twice the last.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// Watches begin no closer than this. One that ends sooner does not work, whatever it tells.
const APART: Duration = Duration::from_secs(1);
/// A watch that is open for so long works, though nothing changes.
const SETTLED: Duration = Duration::from_secs(5);
/// So many failures in a row are none of those that pass; and the version to watch from may be why.
const LASTING: u32 = 3;

/// Why one attempt ended.
enum End {
    /// Nobody listens any more.
    Unheard,
    Failed(Refused),
}

impl From<Refused> for End {
    fn from(refused: Refused) -> Self {
        Self::Failed(refused)
    }
}

/// One line of a watch.
#[derive(Deserialize)]
struct Line {
    r#type: String,
    object: Box<RawValue>,
}

pub(super) struct Watcher<K> {
    asked: Asked,
    list: ListParams,
    watch: WatchParams,
    sender: mpsc::Sender<Told<K>>,
    /// In a row: only a watch that works ends it.
    failures: u32,
}

impl<K: DeserializeOwned> Watcher<K> {
    pub(super) fn new(
        asked: Asked,
        list: ListParams,
        watch: WatchParams,
        sender: mpsc::Sender<Told<K>>,
    ) -> Self {
        Self {
            asked,
            list,
            watch,
            sender,
            failures: 0,
        }
    }

    /// `None`: nobody listens any more.
    pub(super) async fn run(mut self) -> Option<()> {
        let mut version = None;
        loop {
            let (begin, lists) = (Instant::now(), version.is_none());
            let ended = match &mut version {
                None => self.whole_list().await.map(|of| version = Some(of)),
                Some(version) => self.changes(version).await,
            };
            let apart = match ended {
                Ok(()) if lists => Duration::ZERO,
                Ok(()) => APART.saturating_sub(begin.elapsed()),
                Err(End::Unheard) => return None,
                Err(End::Failed(refused)) => {
                    let anew = refused.anew;
                    let pause = self.failed(refused).await?;
                    if anew || self.failures >= LASTING {
                        version = None;
                    }
                    pause
                }
            };
            tokio::time::sleep(apart).await;
        }
    }

    /// The version to watch from.
    async fn whole_list(&mut self) -> Result<String, End> {
        self.tell(Event::Init).await?;
        let list_end = Instant::now() + LIST_TIME;
        let mut page = self.list.clone();
        for _ in 0..PAGES_MAX {
            let until = list_end.min(Instant::now() + PAGE_TIME);
            let listed = self.asked.list(&page, until).await?;
            for object in &listed.items {
                let told = read(object).map_or_else(Event::Unread, Event::InitApply);
                self.tell(told).await?;
            }
            let more = listed.metadata.r#continue;
            let Some(token) = more.filter(|token| !token.is_empty()) else {
                self.tell(Event::InitDone).await?;
                let version = listed.metadata.resource_version;
                let none = "cannot begin: the list tells no resource version";
                return Ok(version.ok_or_else(|| self.asked.watched(Kind::Server, none))?);
            };
            if page.continue_token.as_ref() == Some(&token) {
                let said = "two pages have the same `continue` token (is it an API server?)";
                return Err(self.asked.endless(said).into());
            }
            page = self.list.clone().continue_token(&token);
        }
        let said = format!("it does not end after {PAGES_MAX} pages (is it an API server?)");
        Err(self.asked.endless(&said).into())
    }

    /// One watch, to its end.
    async fn changes(&mut self, version: &mut String) -> Result<(), End> {
        let lines = self.asked.watch(&self.watch, version).await?;
        let mut lines = std::pin::pin!(lines);
        let begin = Instant::now();
        let settled = tokio::time::sleep(SETTLED);
        let mut settled = std::pin::pin!(settled);
        let (mut is_settled, mut told) = (false, false);
        loop {
            let line = tokio::select! {
                line = tokio::time::timeout(SILENT, lines.next()) => line,
                () = &mut settled, if !is_settled => {
                    is_settled = true;
                    self.works().await?;
                    continue;
                }
            };
            let line = match line {
                // Cut off by whatever is between: as an end that comes early.
                Ok(Some(Err(LinesCodecError::Io(error)))) if is_eof(&error) => Ok(None),
                line => line,
            };
            let line = match line {
                Ok(Some(Ok(line))) => line,
                Ok(None) if is_settled || told => {
                    self.works().await?;
                    return Ok(());
                }
                Ok(None) => {
                    let said = "ended at once, without an event (is it an API server?)";
                    return Err(self.asked.watched(Kind::Disconnected, said).into());
                }
                Ok(Some(Err(error))) => return Err(self.broke_off(&error, begin).into()),
                Err(_) => return Err(self.stalled("says nothing any more").into()),
            };
            if let Some(event) = self.event(&line, version)? {
                told = true;
                if begin.elapsed() >= APART {
                    self.works().await?;
                }
                if let Some(event) = event {
                    self.tell(event).await?;
                }
            }
        }
    }

    /// What a line says: nothing if it is half of one, no event if there is nothing to tell.
    #[allow(clippy::option_option)]
    fn event(&self, line: &str, version: &mut String) -> Result<Option<Option<Event<K>>>, Refused> {
        let Line { r#type, object } = match serde_json::from_str(line) {
            Ok(line) => line,
            // The connection ended in its middle.
            Err(error) if error.is_eof() => return Ok(None),
            Err(_) => return Err(self.no_event(line)),
        };
        if r#type == "ERROR" {
            return Err(self.no_event(object.get()));
        }
        let meta = Named::of(&object);
        let event = match r#type.as_str() {
            "BOOKMARK" => None,
            "ADDED" | "MODIFIED" => Some(read(&object).map_or_else(Event::Unread, Event::Apply)),
            "DELETED" => meta.name.map(Event::Delete),
            _ => return Err(self.no_event(line)),
        };
        if let Some(newer) = meta.resource_version {
            *version = newer;
        }
        Ok(Some(event))
    }

    /// A status in place of an event, or what is neither.
    fn no_event(&self, said: &str) -> Refused {
        match serde_json::from_str::<Status>(said) {
            Ok(status) if status.code != 0 => self.asked.status(&status, "watch"),
            _ => {
                let said = "tells what is no event (is it an API server?)";
                self.asked.watched(Kind::Disconnected, said)
            }
        }
    }

    fn broke_off(&self, error: &LinesCodecError, begin: Instant) -> Refused {
        match error {
            LinesCodecError::MaxLineLengthExceeded => {
                let said = "is broken off: one line of it does not end (is it an API server?)";
                self.asked.watched(Kind::Server, said)
            }
            // It should have ended by itself: nobody knows since when nothing came through.
            error if begin.elapsed() > Duration::from_secs(WATCH_S.into()) => self.stalled(
                &format!("broke off after its end: {}", shortened(&chain(error))),
            ),
            error => {
                let said = format!("broke off: {}", shortened(&chain(error)));
                self.asked.watched(Kind::Disconnected, &said)
            }
        }
    }

    fn stalled(&self, said: &str) -> Refused {
        let mut refused = self.asked.watched(Kind::Disconnected, said);
        refused.anew = true;
        refused
    }

    async fn works(&mut self) -> Result<(), End> {
        match std::mem::take(&mut self.failures) {
            0 => Ok(()),
            _ => self.tell(Event::Works).await,
        }
    }

    async fn tell(&self, event: Event<K>) -> Result<(), End> {
        self.sender.send(Ok(event)).await.map_err(|_| End::Unheard)
    }

    /// Tells of it. Returns the pause.
    async fn failed(&mut self, refused: Refused) -> Option<Duration> {
        let pause = pause(self.failures).max(refused.after.unwrap_or_default());
        self.failures = self.failures.saturating_add(1);
        let mut failure = refused.failure;
        if failure.kind.is_passing() && self.failures >= LASTING {
            failure.kind = Kind::Server;
            failure.text = format!("again and again: {}", failure.text);
        }
        self.sender.send(Err(failure)).await.ok()?;
        Some(pause)
    }
}

fn pause(failures: u32) -> Duration {
    PAUSE_MIN
        .saturating_mul(1 << failures.min(8))
        .min(PAUSE_MAX)
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
