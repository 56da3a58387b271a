//! What is known against one endpoint, and what follows from it.

use prefix_picker_core::sync::SyncError;
use prefix_picker_core::sync::cursor::{Reader, Writer};

/// Attempts in a row that got no answer, after which an endpoint is ejected.
pub const UNREACHED_MAX: u8 = 2;
/// Such an attempt is forgotten after so long, in milliseconds.
pub const UNREACHED_MS: u64 = 60_000;
/// Server errors in a row, after which an endpoint is ejected.
pub const ERRORS_MAX: u8 = 5;
/// If each came within so long after the one before, in milliseconds.
pub const ERRORS_MS: u64 = 10_000;
/// The first ejection lasts so long, in milliseconds; each further one twice as long.
pub const EJECTED_MS: u64 = 2_000;
/// But not longer than this.
pub const EJECTED_MAX_MS: u64 = 60_000;
/// A probe that is not answered for so long is no reason to wait any more, in milliseconds.
pub const PROBE_MS: u64 = 5_000;
/// An endpoint that is ejected again within so long after it came back stays away for longer than the
/// last time, in milliseconds.
pub const CALM_MS: u64 = 60_000;
/// An endpoint that nobody tried for so long after its ejection is forgotten, in milliseconds.
const GONE_MS: u64 = 600_000;
/// Strain is halved in so long, in milliseconds.
const HALF_MS: u64 = 2_000;
/// Strain of one refusal for overload, in thousandths of a waiting request.
const STRAIN_BUSY: u32 = 4_000;
/// Strain of one attempt without an answer. Little: an idle connection that an engine closes just when
/// it is used again looks the same.
const STRAIN_UNREACHED: u32 = 1_000;
/// Strain of one server error.
const STRAIN_ERROR: u32 = 2_000;
/// More strain than this is not counted.
pub const STRAIN_MAX: u32 = 64_000;
/// Time stamps further in the future than this, in milliseconds, are of a clock that was set back.
const SKEW_MS: u64 = 1_000;

/// What became of a request on an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// It was served.
    Served,
    /// The endpoint found fault with the request: it is there, and that is all that is known.
    Refused,
    /// 503: too much to do.
    Busy,
    /// Another server error.
    Error,
    /// No connection, or it broke before an answer began.
    Unreached,
}

/// What a signal changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing: no need to write.
    Nothing,
    /// Something was noted.
    Noted,
    /// The endpoint was ejected.
    Ejected,
    /// It is back.
    Restored,
}

/// Whether an endpoint can be sent requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Yes.
    #[default]
    Open,
    /// One, as a probe.
    Probe,
    /// No.
    Closed,
}

/// What is known of one endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) name: String,
    /// Attempts without an answer in a row, and server errors in a row, the last one at `failed_ms`.
    pub(super) unreached: u8,
    pub(super) errors: u8,
    failed_ms: u64,
    /// It was ejected for server errors, not for giving no answer.
    for_errors: bool,
    /// How often it was ejected before, each time soon after it had come back.
    level: u8,
    /// Ejected from, to; 0: it is not.
    since_ms: u64,
    until_ms: u64,
    /// A probe is under way, and waited for until then.
    pub(super) probe_until_ms: u64,
    /// When it came back.
    restored_ms: u64,
    strain: u32,
    strained_ms: u64,
}

impl Record {
    pub(super) fn new(endpoint: &str) -> Self {
        Self {
            name: endpoint.to_owned(),
            ..Self::default()
        }
    }

    pub(super) fn is_ejected(&self) -> bool {
        self.until_ms != 0
    }

    pub(super) fn access(&self, now_ms: u64) -> Access {
        if !self.is_ejected() {
            Access::Open
        } else if now_ms < self.until_ms || now_ms < self.probe_until_ms {
            Access::Closed
        } else {
            Access::Probe
        }
    }

    pub(super) fn strain(&self, now_ms: u64) -> u32 {
        let age_ms = now_ms.saturating_sub(self.strained_ms);
        let halvings = u32::try_from(age_ms / HALF_MS).unwrap_or(u32::MAX);
        let strain = u64::from(self.strain.checked_shr(halvings).unwrap_or(0));
        // Between two halvings on a straight line.
        let gone = strain * (age_ms % HALF_MS) / (2 * HALF_MS);
        u32::try_from(strain - gone).unwrap_or(0)
    }

    fn add_strain(&mut self, more: u32, now_ms: u64) {
        self.strain = self.strain(now_ms).saturating_add(more).min(STRAIN_MAX);
        self.strained_ms = now_ms;
    }

    /// It has no grounds to be remembered.
    pub(super) fn is_over(&self, now_ms: u64) -> bool {
        let stamps = [
            self.failed_ms,
            self.since_ms,
            self.restored_ms,
            self.strained_ms,
        ];
        if stamps.iter().any(|&at| at > now_ms.saturating_add(SKEW_MS)) {
            return true;
        }
        if self.is_ejected() {
            let longest = self.since_ms.saturating_add(EJECTED_MAX_MS);
            return self.until_ms > longest || now_ms > self.until_ms.saturating_add(GONE_MS);
        }
        let failing = (self.unreached | self.errors) != 0
            && now_ms.saturating_sub(self.failed_ms) < UNREACHED_MS;
        let level = self.restored_ms != 0 && now_ms.saturating_sub(self.restored_ms) < CALM_MS;
        !failing && !level && self.strain(now_ms) == 0
    }

    fn eject(&mut self, for_errors: bool, now_ms: u64) -> Change {
        let again = self.is_ejected()
            || self.restored_ms != 0 && now_ms.saturating_sub(self.restored_ms) < CALM_MS;
        self.level = if again {
            self.level.saturating_add(1)
        } else {
            0
        };
        let longer = EJECTED_MS.checked_shl(self.level.into());
        // Shifted out at the top, it is the longest all the same.
        let ms = longer.filter(|_| self.level < 32).unwrap_or(EJECTED_MAX_MS);
        self.for_errors = for_errors;
        (self.unreached, self.errors) = (0, 0);
        self.since_ms = now_ms;
        self.until_ms = now_ms.saturating_add(ms.min(EJECTED_MAX_MS));
        self.probe_until_ms = 0;
        Change::Ejected
    }

    fn restore(&mut self, now_ms: u64) -> Change {
        (self.unreached, self.errors) = (0, 0);
        (self.since_ms, self.until_ms, self.probe_until_ms) = (0, 0, 0);
        self.restored_ms = now_ms;
        Change::Restored
    }

    /// `sent_ms`: when the request was sent that this is about.
    pub(super) fn apply(&mut self, signal: Signal, sent_ms: u64, now_ms: u64) -> Change {
        match signal {
            Signal::Busy => self.add_strain(STRAIN_BUSY, now_ms),
            Signal::Unreached => self.add_strain(STRAIN_UNREACHED, now_ms),
            Signal::Error => self.add_strain(STRAIN_ERROR, now_ms),
            Signal::Served | Signal::Refused => {}
        }
        if self.is_ejected() {
            return self.apply_ejected(signal, sent_ms, now_ms);
        }
        let age_ms = now_ms.saturating_sub(self.failed_ms);
        match signal {
            Signal::Served => self.forgive(true),
            Signal::Refused => self.forgive(false),
            Signal::Busy => {
                self.forgive(false);
                Change::Noted
            }
            Signal::Error => {
                self.unreached = 0;
                let going_on = age_ms < ERRORS_MS;
                self.errors = if going_on { self.errors } else { 0 }.saturating_add(1);
                self.failed_ms = now_ms;
                if self.errors >= ERRORS_MAX {
                    return self.eject(true, now_ms);
                }
                Change::Noted
            }
            Signal::Unreached => {
                let going_on = age_ms < UNREACHED_MS;
                self.unreached = if going_on { self.unreached } else { 0 }.saturating_add(1);
                self.failed_ms = now_ms;
                if self.unreached >= UNREACHED_MAX {
                    return self.eject(false, now_ms);
                }
                Change::Noted
            }
        }
    }

    fn forgive(&mut self, errors_too: bool) -> Change {
        let errors = if errors_too { 0 } else { self.errors };
        let changed = (self.unreached, self.errors) != (0, errors);
        (self.unreached, self.errors) = (0, errors);
        if changed {
            Change::Noted
        } else {
            Change::Nothing
        }
    }

    fn apply_ejected(&mut self, signal: Signal, sent_ms: u64, now_ms: u64) -> Change {
        // Sent before, it says nothing of now.
        if sent_ms < self.since_ms {
            return Change::Nothing;
        }
        match signal {
            Signal::Served => self.restore(now_ms),
            Signal::Refused | Signal::Busy if !self.for_errors => self.restore(now_ms),
            Signal::Refused | Signal::Busy => {
                // No proof either way: the next one is the probe.
                self.probe_until_ms = 0;
                Change::Noted
            }
            // Sent although it was away, since all were.
            Signal::Error | Signal::Unreached if sent_ms < self.until_ms => Change::Nothing,
            Signal::Error => self.eject(true, now_ms),
            Signal::Unreached => self.eject(false, now_ms),
        }
    }

    pub(super) fn encode(&self, w: &mut Writer) {
        w.u8(u8::try_from(self.name.len()).unwrap_or(0));
        w.raw(self.name.as_bytes());
        w.u8(self.unreached);
        w.u8(self.errors);
        w.u64(self.failed_ms);
        w.u8(self.for_errors.into());
        w.u8(self.level);
        for ms in [
            self.since_ms,
            self.until_ms,
            self.probe_until_ms,
            self.restored_ms,
        ] {
            w.u64(ms);
        }
        w.u32(self.strain);
        w.u64(self.strained_ms);
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Self, SyncError> {
        let len = r.u8()?;
        let name = r.take(len.into())?.to_vec();
        Ok(Self {
            name: String::from_utf8(name).map_err(|_| SyncError::Truncated)?,
            unreached: r.u8()?,
            errors: r.u8()?,
            failed_ms: r.u64()?,
            for_errors: r.u8()? != 0,
            level: r.u8()?,
            since_ms: r.u64()?,
            until_ms: r.u64()?,
            probe_until_ms: r.u64()?,
            restored_ms: r.u64()?,
            strain: r.u32()?,
            strained_ms: r.u64()?,
        })
    }
}
