//! Replicas that nobody has to list: found in the DNS or in Kubernetes, as they come and go.
//!
//! | part | what it does |
//! |---|---|
//! | [`set`] | what is listed against what is there -> who comes, who goes: pure, no I/O, no clock |
//! | [`found`] | an address that was found -> a replica's configuration; pure |
//! | [`dns`], [`kubernetes`] | ask, and tell what is listed or that they could not find out |
//! | [`run`] | carries it out: engine, tasks, metrics, log |
//! | [`kept`] | the last list on disk, with which a restart begins |
//!
//! Who cannot be asked changes nothing: the last list stays in force, whatever fails. What engines say
//! of their health decides beside it, within a second.

pub mod dns;
pub mod found;
pub mod kept;
pub mod kubernetes;
pub mod run;
pub mod set;

use found::Found;

/// What somebody who was asked says.
#[derive(Debug)]
pub struct News {
    /// The pool's position.
    pub pool: usize,
    /// All that is listed now, or why that is not known.
    pub list: Result<Vec<Found>, Failure>,
    /// A part of the list could not be had, and is as it was.
    pub partly: Option<Failure>,
}

impl News {
    fn list(pool: usize, list: Vec<Found>) -> Self {
        Self {
            pool,
            list: Ok(list),
            partly: None,
        }
    }

    fn failure(pool: usize, why: Failure) -> Self {
        Self {
            pool,
            list: Err(why),
            partly: None,
        }
    }
}

/// Why it is not known who is there. The last list stays in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// For metrics.
    pub kind: Kind,
    /// For people: what was asked, what came back, what to do.
    pub text: String,
}

/// Kinds of failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// No answer in time, or no connection.
    Unreachable,
    /// The answer is that there is none.
    Empty,
    /// The name or object is not there.
    NotFound,
    /// It is not allowed to ask.
    Forbidden,
    /// The list has to be read again from its beginning (410 Gone).
    Gone,
    /// The connection broke off.
    Disconnected,
    /// The server failed, or its answer cannot be read.
    Server,
    /// The configuration of the client cannot be used.
    Client,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 8] = [
        Self::Unreachable,
        Self::Empty,
        Self::NotFound,
        Self::Forbidden,
        Self::Gone,
        Self::Disconnected,
        Self::Server,
        Self::Client,
    ];

    /// All in a day's work: the watch goes on.
    #[must_use]
    pub fn is_passing(self) -> bool {
        matches!(self, Self::Gone | Self::Disconnected)
    }

    /// As in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Empty => "empty",
            Self::NotFound => "not_found",
            Self::Forbidden => "forbidden",
            Self::Gone => "gone",
            Self::Disconnected => "disconnected",
            Self::Server => "server",
            Self::Client => "client",
        }
    }
}
