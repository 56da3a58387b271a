//! Objects as they are read: leniently, and one by one.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::ask::shortened;

/// `metadata`, as far as it is read.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    pub(super) name: Option<String>,
    pub(super) namespace: Option<String>,
    pub(super) uid: Option<String>,
    pub(super) resource_version: Option<String>,
    pub(super) deletion_timestamp: Option<String>,
}

/// What every object has.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Named {
    #[serde(deserialize_with = "null")]
    pub(super) metadata: Meta,
}

impl Named {
    /// Of an object that may be unreadable otherwise.
    pub(super) fn of(raw: &RawValue) -> Meta {
        let named: Self = serde_json::from_str(raw.get()).unwrap_or_default();
        named.metadata
    }
}

/// An object that cannot be read.
#[derive(Clone, Debug)]
pub(super) struct Unread {
    /// If at least that can be read.
    pub(super) name: Option<String>,
    /// What, and why.
    pub(super) text: String,
}

/// Reads an object of a list or an event.
pub(super) fn read<K: DeserializeOwned>(raw: &RawValue) -> Result<K, Unread> {
    serde_json::from_str(raw.get()).map_err(|error| {
        let meta = Named::of(raw);
        let error = shortened(&error.to_string());
        let text = match &meta.name {
            None => format!("(without a readable name) cannot be read: {error}"),
            Some(name) => {
                let namespace = meta.namespace.unwrap_or_default();
                format!("{namespace}/{name} cannot be read: {error}")
            }
        };
        Unread {
            name: meta.name,
            text,
        }
    })
}

/// A field that is null is as one that is not there.
pub(super) fn null<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(from)?.unwrap_or_default())
}
