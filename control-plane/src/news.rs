//! What gateways tell each other, passed on: work in flight, and what was just sent where.
//!
//! [`Board`] is pure, with time as a parameter; [`News`] is the same for the server's tasks, which wait
//! here for something to answer. Nothing is kept on disk: all of it is over within seconds.
//!
//! Absent here: what places and claims mean. The control plane passes them on as they are.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use prefix_picker_core::sync::news::{ANSWERED_MAX, OthersNews, PlaceWork, Report, Sent, WORK_MAX};
use tokio::sync::watch;

use crate::clock::ms_since;

/// A gateway that was not heard of for this long is gone, in milliseconds: they report once a second
/// at least.
pub const SILENT_MS: u64 = 3_000;

/// How much is kept.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Gateways; further ones are answered, but not heard.
    pub gateways: usize,
    /// Claims, the newest.
    pub claims: usize,
    /// Claims of one answer.
    pub answered: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            gateways: 256,
            claims: 16_384,
            answered: ANSWERED_MAX,
        }
    }
}

#[derive(Debug)]
struct Gateway {
    /// Never given twice.
    id: u64,
    seq: Option<u64>,
    heard_ms: u64,
    /// Number of the last change of `work`.
    changed: u64,
    /// By place, each once, none idle.
    work: Vec<PlaceWork>,
}

#[derive(Debug)]
struct Kept {
    number: u64,
    gateway: u64,
    /// When `sent`'s times were true.
    heard_ms: u64,
    sent: Sent,
}

impl Kept {
    /// As of now; `None`: over.
    fn at(&self, now_ms: u64) -> Option<Sent> {
        let passed = now_ms.saturating_sub(self.heard_ms);
        let passed = u32::try_from(passed).unwrap_or(u32::MAX);
        let life_ms = self.sent.life_ms.saturating_sub(passed);
        (life_ms > 0).then(|| Sent {
            age_ms: self.sent.age_ms.saturating_add(passed),
            life_ms,
            ..self.sent.clone()
        })
    }
}

/// All that is known.
#[derive(Debug)]
pub struct Board {
    instance: u64,
    limits: Limits,
    gateways: HashMap<String, Gateway>,
    next_id: u64,
    /// In the order of their numbers, which have no gaps.
    kept: VecDeque<Kept>,
    last_claim: u64,
    last_change: u64,
    /// Number of the change by which a gateway was last gone.
    last_gone: u64,
}

impl Board {
    /// Nothing is known yet. `instance` must differ from other lives' of the control plane.
    #[must_use]
    pub fn new(instance: u64, limits: Limits) -> Self {
        Self {
            instance,
            limits,
            gateways: HashMap::new(),
            next_id: 1,
            kept: VecDeque::new(),
            last_claim: 0,
            last_change: 0,
            last_gone: 0,
        }
    }

    /// Takes a report. False: there are too many gateways, and this one was not heard.
    pub fn take(&mut self, report: &Report, now_ms: u64) -> bool {
        self.expire(now_ms);
        if !self.gateways.contains_key(&report.gateway) {
            if self.gateways.len() >= self.limits.gateways {
                return false;
            }
            let gateway = Gateway {
                id: self.next_id,
                seq: None,
                heard_ms: now_ms,
                changed: 0,
                work: Vec::new(),
            };
            self.next_id += 1;
            self.gateways.insert(report.gateway.clone(), gateway);
        }
        let Some(gateway) = self.gateways.get_mut(&report.gateway) else {
            return false;
        };
        gateway.heard_ms = gateway.heard_ms.max(now_ms);
        // One that was overtaken says what was. Its claims are news all the same.
        if Some(report.seq) > gateway.seq {
            gateway.seq = Some(report.seq);
            let work = summed(report.work.iter());
            if work != gateway.work {
                gateway.work = work;
                self.last_change += 1;
                gateway.changed = self.last_change;
            }
        }
        let id = gateway.id;
        for sent in &report.sent {
            self.last_claim += 1;
            self.kept.push_back(Kept {
                number: self.last_claim,
                gateway: id,
                heard_ms: now_ms,
                sent: sent.clone(),
            });
        }
        let excess = self.kept.len().saturating_sub(self.limits.claims);
        self.kept.drain(..excess);
        true
    }

    /// Forgets what is over.
    fn expire(&mut self, now_ms: u64) {
        let before = self.gateways.len();
        self.gateways
            .retain(|_, gateway| now_ms.saturating_sub(gateway.heard_ms) < SILENT_MS);
        if self.gateways.len() < before {
            self.last_change += 1;
            self.last_gone = self.last_change;
        }
        // Those behind one that lasts go later: a few seconds at most.
        while self
            .kept
            .front()
            .is_some_and(|kept| kept.at(now_ms).is_none())
        {
            self.kept.pop_front();
        }
    }

    /// What a gateway knows of this life: claims, and changes of totals.
    fn known(&self, report: &Report) -> (u64, u64) {
        if report.instance == self.instance {
            (report.cursor, report.seen)
        } else {
            (0, 0)
        }
    }

    fn others<'a>(&'a self, report: &'a Report) -> impl Iterator<Item = &'a Gateway> {
        let others = self.gateways.iter();
        others
            .filter(|(name, _)| **name != report.gateway)
            .map(|(_, gateway)| gateway)
    }

    /// Claims of others that the gateway does not know, with their numbers.
    fn claims<'a>(
        &'a self,
        report: &Report,
        now_ms: u64,
    ) -> impl Iterator<Item = (u64, Sent)> + 'a {
        let own = self.gateways.get(&report.gateway).map(|own| own.id);
        let (cursor, _) = self.known(report);
        let first = self.kept.partition_point(|kept| kept.number <= cursor);
        self.kept
            .range(first..)
            .filter(move |kept| Some(kept.gateway) != own)
            .filter_map(move |kept| Some((kept.number, kept.at(now_ms)?)))
    }

    /// Is there anything that the gateway does not know?
    pub fn has_news(&mut self, report: &Report, now_ms: u64) -> bool {
        self.expire(now_ms);
        let (_, seen) = self.known(report);
        let changed = self.others(report).map(|gateway| gateway.changed).max();
        self.last_gone > seen
            || changed.is_some_and(|changed| changed > seen)
            || self.claims(report, now_ms).next().is_some()
    }

    /// What the gateway is answered now.
    pub fn answer(&mut self, report: &Report, now_ms: u64) -> OthersNews {
        self.expire(now_ms);
        let mut claims = self.claims(report, now_ms);
        let few: Vec<(u64, Sent)> = claims.by_ref().take(self.limits.answered).collect();
        let more = claims.next().is_some();
        let cursor = match few.last() {
            Some((last, _)) if more => *last,
            _ => self.last_claim,
        };
        let mut work = summed(self.others(report).flat_map(|gateway| &gateway.work));
        work.truncate(WORK_MAX);
        OthersNews {
            instance: self.instance,
            cursor,
            seen: self.last_change,
            more,
            gateways: u16::try_from(self.others(report).count()).unwrap_or(u16::MAX),
            work,
            sent: few.into_iter().map(|(_, sent)| sent).collect(),
        }
    }

    /// What all gateways have in flight, by replica.
    pub fn totals(&mut self, now_ms: u64) -> Vec<PlaceWork> {
        self.expire(now_ms);
        summed(self.gateways.values().flat_map(|gateway| &gateway.work))
    }

    /// Gateways and claims that are known.
    pub fn sizes(&mut self, now_ms: u64) -> (usize, usize) {
        self.expire(now_ms);
        (self.gateways.len(), self.kept.len())
    }
}

/// Each place once, without those that are idle.
fn summed<'a>(work: impl Iterator<Item = &'a PlaceWork>) -> Vec<PlaceWork> {
    let mut by_place: BTreeMap<u64, PlaceWork> = BTreeMap::new();
    for work in work {
        by_place
            .entry(work.place)
            .and_modify(|sum| sum.add(work))
            .or_insert(*work);
    }
    let idle = |work: &PlaceWork| (work.requests, work.tokens, work.context) == (0, 0, 0);
    by_place.into_values().filter(|work| !idle(work)).collect()
}

/// A [`Board`] that tasks share and wait at.
#[derive(Debug)]
pub struct News {
    board: Mutex<Board>,
    start: tokio::time::Instant,
    told: watch::Sender<u64>,
}

impl News {
    /// For one life of the control plane.
    #[must_use]
    pub fn new(instance: u64) -> Self {
        Self {
            board: Mutex::new(Board::new(instance, Limits::default())),
            start: tokio::time::Instant::now(),
            told: watch::Sender::new(0),
        }
    }

    fn with<R>(&self, work: impl FnOnce(&mut Board, u64) -> R) -> R {
        let now_ms = ms_since(self.start);
        let mut board = self.board.lock().unwrap_or_else(PoisonError::into_inner);
        work(&mut board, now_ms)
    }

    /// Takes a report and wakes who waits. False: not heard, there are too many.
    pub fn take(&self, report: &Report) -> bool {
        let heard = self.with(|board, now_ms| board.take(report, now_ms));
        self.told
            .send_modify(|count| *count = count.wrapping_add(1));
        heard
    }

    /// What the gateway is answered, once there is something or `until`; reports that come meanwhile are
    /// looked at `gather` later, so that a burst is one answer.
    pub async fn answer(
        &self,
        report: &Report,
        until: tokio::time::Instant,
        gather: std::time::Duration,
    ) -> OthersNews {
        let mut told = self.told.subscribe();
        while tokio::time::Instant::now() < until
            && !self.with(|board, now_ms| board.has_news(report, now_ms))
        {
            // Whatever ends the wait, the loop finds out.
            if let Ok(Ok(())) = tokio::time::timeout_at(until, told.changed()).await {
                tokio::time::sleep(gather).await;
            }
        }
        self.with(|board, now_ms| board.answer(report, now_ms))
    }

    /// What all gateways have in flight, by replica.
    #[must_use]
    pub fn totals(&self) -> Vec<PlaceWork> {
        self.with(Board::totals)
    }

    /// Gateways and claims that are known.
    #[must_use]
    pub fn sizes(&self) -> (usize, usize) {
        self.with(Board::sizes)
    }
}

#[cfg(test)]
mod tests;
