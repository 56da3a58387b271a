//! Finds things in `/config_dump`, static or discovered.

use std::collections::BTreeMap;

use serde_json::Value;

/// How deep listeners are searched.
const DEPTH_MAX: usize = 40;

/// What is in use.
pub(super) struct Dump<'a> {
    /// Listeners with their names.
    pub(super) listeners: Vec<(&'a str, &'a Value)>,
    /// Clusters by name.
    pub(super) clusters: BTreeMap<&'a str, &'a Value>,
    /// Route configurations that came by discovery, by name.
    routes: BTreeMap<&'a str, &'a Value>,
    /// Filters that came by discovery, by name.
    filters: BTreeMap<&'a str, &'a Value>,
}

impl<'a> Dump<'a> {
    pub(super) fn of(dump: &'a Value) -> Self {
        let sections = list(dump, "configs");
        let named = |lists: &[&str], inner: &[&str]| -> Vec<(&'a str, &'a Value)> {
            let entries = sections
                .iter()
                .flat_map(|section| lists.iter().flat_map(|name| list(section, name)));
            let found =
                entries.filter_map(|entry| inner.iter().find_map(|path| entry.pointer(path)));
            let with_name = found.map(|value| (text(value, "name").unwrap_or_default(), value));
            with_name.collect()
        };
        Self {
            listeners: named(
                &["static_listeners", "dynamic_listeners"],
                &["/listener", "/active_state/listener"],
            ),
            clusters: named(
                &["static_clusters", "dynamic_active_clusters"],
                &["/cluster"],
            )
            .into_iter()
            .collect(),
            routes: named(
                &["static_route_configs", "dynamic_route_configs"],
                &["/route_config"],
            )
            .into_iter()
            .collect(),
            filters: named(&["ecds_filters"], &["/ecds_filter"])
                .into_iter()
                .collect(),
        }
    }

    /// The connection managers of a listener.
    pub(super) fn managers(&self, listener: &'a Value) -> Vec<&'a Value> {
        let mut found = Vec::new();
        search(listener, "HttpConnectionManager", DEPTH_MAX, &mut found);
        found
    }

    /// A connection manager's filters: type and configuration, those that came by discovery too.
    pub(super) fn http_filters(&self, manager: &'a Value) -> Vec<(&'a str, &'a Value)> {
        let filters = list(manager, "http_filters").iter();
        filters
            .filter_map(|filter| {
                let own = filter.get("typed_config");
                let discovered = || {
                    let name = text(filter, "name")?;
                    self.filters.get(name)?.get("typed_config")
                };
                Some(typed(own.or_else(discovered)?))
            })
            .collect()
    }

    /// A connection manager's virtual hosts.
    pub(super) fn virtual_hosts(&self, manager: &'a Value) -> &'a [Value] {
        let own = manager.get("route_config");
        let discovered = || {
            let name = manager.pointer("/rds/route_config_name")?.as_str()?;
            self.routes.get(name).copied()
        };
        own.or_else(discovered)
            .map_or(&[], |routes| list(routes, "virtual_hosts"))
    }
}

/// Clusters that a route leads to.
pub(super) fn clusters_of(route: &Value) -> Vec<&str> {
    let Some(action) = route.get("route") else {
        return Vec::new();
    };
    let weighted = action.pointer("/weighted_clusters/clusters");
    let weighted = weighted.and_then(Value::as_array).into_iter().flatten();
    let weighted = weighted.filter_map(|cluster| text(cluster, "name"));
    text(action, "cluster")
        .into_iter()
        .chain(weighted)
        .collect()
}

/// A list's items; none if it is not there.
pub(super) fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    let found = value.get(name).and_then(Value::as_array);
    found.map_or(&[], Vec::as_slice)
}

/// A string.
pub(super) fn text<'a>(value: &'a Value, name: &str) -> Option<&'a str> {
    value.get(name)?.as_str()
}

/// A number: 64 bits come as a string.
pub(super) fn number(value: &Value, name: &str) -> Option<u64> {
    let value = value.get(name)?;
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

/// The last part of a type's name, and what is of that type; Istio wraps what it does not know.
pub(super) fn typed(value: &Value) -> (&str, &Value) {
    let last = |name: &'_ str| name.rsplit(['.', '/']).next().map_or(0, str::len);
    let short = |name| -> &str {
        let name: &str = name;
        name.get(name.len() - last(name)..).unwrap_or_default()
    };
    let kind = short(text(value, "@type").unwrap_or_default());
    match (kind, text(value, "type_url"), value.get("value")) {
        ("TypedStruct", Some(inner), Some(wrapped)) => (short(inner), wrapped),
        _ => (kind, value),
    }
}

fn search<'a>(value: &'a Value, kind: &str, depth: usize, found: &mut Vec<&'a Value>) {
    let inner: Box<dyn Iterator<Item = &'a Value>> = match value {
        Value::Object(map) => {
            let (own, wrapped) = typed(value);
            if own == kind {
                found.push(wrapped);
                return;
            }
            Box::new(map.values())
        }
        Value::Array(items) => Box::new(items.iter()),
        _ => return,
    };
    if depth > 0 {
        inner.for_each(|value| search(value, kind, depth - 1, found));
    }
}
