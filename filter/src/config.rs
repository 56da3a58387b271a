//! The plugin's configuration: a small JSON object in Envoy's own configuration.
//!
//! What the filter must know about models, replicas and hashing comes from the control plane, not
//! from here. Unknown fields are refused: a misspelt one would be a silent default.

use serde::Deserialize;

use crate::mode::Mode;
use crate::standalone::{self, Standalone};

/// Longest body held, unless the configuration says otherwise: just under Envoy's stock buffer
/// limit of 1 MiB, over which Envoy itself answers 413.
pub const MAX_BODY_BYTES: u64 = 1_048_000;
/// After this long without an answer from the control plane the table is not believed any more.
pub const STALE_AFTER_MS: u64 = 60_000;
/// Control planes at most.
pub const CONTROL_PLANES_MAX: usize = 8;
/// One in this many requests is timed.
pub const TIMING_SAMPLE: u32 = 16;

/// The checked configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Control planes in the order in which they are asked: the next one only where one fails. One at
    /// least, but in standalone.
    pub control_planes: Vec<ControlPlane>,
    /// `Bearer <token>`, as sent.
    pub authorization: String,
    /// Replicas listed here instead of a control plane; the fields above are empty then.
    pub standalone: Option<Standalone>,
    /// Longest body held where `content-length` gives the length, in bytes.
    pub max_body_bytes: u64,
    /// Longest body waited on over HTTP/1.1 where the length is not announced, in bytes. 0: only
    /// such bodies are looked at that come in one piece. Must leave room for one read of a
    /// connection below Envoy's buffer limit, so that nothing fits below the stock limit.
    pub max_chunked_body_bytes: u64,
    /// What may stand before `/v1/...`; "" for nothing.
    pub path_prefixes: Vec<String>,
    /// Envoy's `allow_on_headers_stop_iteration` is set, so that headers can be held. False: they go on
    /// to a buffer filter behind this one, and the pick into filter state.
    pub hold_headers: bool,
    /// After this long without an answer from the control plane, picks go by load alone, in ms.
    pub stale_after_ms: u64,
    /// One in this many requests is timed; 0: none.
    pub timing_sample: u32,
    /// One in this many requests asks its engine for a full report of what it has cached, in pools
    /// that take such reports; 0: none.
    pub full_report_sample: u32,
    /// Requests of one `user` (a field of the body) are a session, where nothing else names one.
    pub session_from_user: bool,
    /// A request header by which a client asks for response headers that say what was decided;
    /// `None`: nobody is told.
    pub debug_header: Option<String>,
    /// What is done with requests whose route says nothing else.
    pub mode: Mode,
    /// Of those to enforce so many in a hundred are; the others are in shadow.
    pub percent: u8,
}

/// Where one control plane is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlPlane {
    /// Its Envoy cluster.
    pub cluster: String,
    /// `:authority` of what it is asked.
    pub authority: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    /// `control_plane`: where the control plane is, see [below](#control_plane). This or `standalone` is
    /// needed. Default none.
    control_plane: Option<RawControlPlane>,
    /// `standalone`: replicas listed here, instead of `control_plane`, see
    /// [below](#standalone).
    /// Default none.
    standalone: Option<standalone::Raw>,
    /// `max_body_bytes`: longest body held where `content-length` gives the length; longer ones are balanced
    /// by load. Keep it at or under Envoy's buffer limit for the route. Default `1048000`.
    max_body_bytes: Option<u64>,
    /// `max_chunked_body_bytes`: longest body waited on where the length is not announced. 0: only bodies
    /// that come in one piece are looked at. Must leave one connection read (1 MiB) below Envoy's limit, or
    /// Envoy itself answers 413. Default `0`.
    max_chunked_body_bytes: Option<u64>,
    /// `path_prefixes`: a list of what may stand before the paths that are looked at: `/v1/chat/completions`,
    /// `/v1/completions`, `/v1/responses`, `/v1/messages`, `/v1/embeddings`, `/pooling`, `/classify`,
    /// `/tokenize`. Default `[""]`.
    path_prefixes: Option<Vec<String>>,
    /// `hold_headers`: `false` where Envoy's `allow_on_headers_stop_iteration` cannot be set: the headers go
    /// on at once, to a buffer filter that must stand behind this one, and a route header brings what was
    /// picked (see [operations](operations.md#without-allow_on_headers_stop_iteration)). Default `true`.
    hold_headers: Option<bool>,
    /// `stale_after_ms`: after this long without the control plane, picks go by load alone. Default `60000`.
    stale_after_ms: Option<u64>,
    /// `timing_sample`: one in this many requests is timed; 0: none. Default `16`.
    timing_sample: Option<u32>,
    /// `full_report_sample`: one in this many requests asks its engine to announce anew all that it finds
    /// cached (`vllm_xargs.kv_cache_report_mode: full`, vLLM 0.26 and later), so that a control plane that
    /// lost its state learns of prefixes that are never evicted; at most one a second and worker; 0: none.
    /// Only in pools with `full_reports: true`. The only case in which a request's body is changed: the mode
    /// is put in, all else stays byte for byte, and bodies that leave a doubt are left alone. Default `0`.
    full_report_sample: Option<u32>,
    /// `session_from_user`: requests of one `user` (a field of the body) are a session, where nothing else
    /// names one. Default `false`.
    session_from_user: Option<bool>,
    /// `debug_header`: a request header, `x-prefix-picker-debug` for example, by which a client asks what was
    /// decided: with any value but `0` and `false` the response gets `x-prefix-picker-replica` (the endpoint
    /// named first; `endpoint#rank` where it has [ranks](operations.md#data-parallel-ranks)),
    /// `x-prefix-picker-matched` (prompt tokens that it holds as far as known), `x-prefix-picker-reason` and
    /// `x-prefix-picker-cost` (the picker's estimate, in microseconds), in place of any that the engine
    /// sends. It tells endpoints to whoever may ask: leave it out, or remove the header at the edge, where
    /// clients are not trusted. Default none.
    debug_header: Option<String>,
    /// `mode`: `shadow`: endpoints are chosen and counted but not named, Envoy does what it would have done;
    /// `off`: requests are left alone. Default `enforce`.
    mode: Option<Mode>,
    /// `percent`: of requests to enforce, so many in a hundred are; the others are in shadow. Default `100`.
    percent: Option<u8>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawControlPlane {
    /// `cluster`: Envoy cluster of the control plane. Required, but where `clusters` is given.
    cluster: Option<String>,
    /// `clusters`: instead of `cluster`: the clusters of several control planes, 8 at most, in the order in
    /// which they are asked (see [operations](operations.md#several-control-planes)). Default none.
    clusters: Option<Vec<String>>,
    /// `authority`: `:authority` of polls. Default: the cluster's name, each its own.
    authority: Option<String>,
    /// `token`: bearer token, one of the control plane's `tokens`. Required.
    token: String,
}

impl RawControlPlane {
    /// The control planes, and what is sent as authorization.
    fn check(self, wrong: &mut Vec<String>) -> (Vec<ControlPlane>, String) {
        let token = &self.token;
        if token.is_empty() || !token.bytes().all(|b| b.is_ascii_graphic()) {
            wrong.push(
                "control_plane.token: visible ASCII characters without spaces are needed"
                    .to_owned(),
            );
        }
        let authorization = format!("Bearer {token}");
        (self.planes(wrong), authorization)
    }

    fn planes(self, wrong: &mut Vec<String>) -> Vec<ControlPlane> {
        let (field, clusters) = match (self.cluster, self.clusters) {
            (Some(cluster), None) => ("cluster", vec![cluster]),
            (None, Some(clusters)) => ("clusters", clusters),
            _ => {
                let text = "control_plane: either `cluster` or, for several in order, `clusters` is needed";
                wrong.push(text.to_owned());
                return Vec::new();
            }
        };
        let twice = (1..)
            .zip(&clusters)
            .any(|(next, name)| clusters.iter().skip(next).any(|n| n == name));
        if clusters.is_empty() || clusters.iter().any(String::is_empty) {
            wrong.push(format!(
                "control_plane.{field}: the name of an Envoy cluster is needed"
            ));
        } else if twice {
            wrong.push("control_plane.clusters: the same cluster twice".to_owned());
        } else if clusters.len() > CONTROL_PLANES_MAX {
            wrong.push(format!(
                "control_plane.clusters: {CONTROL_PLANES_MAX} at most"
            ));
        }
        let plane = |cluster: String| ControlPlane {
            authority: self.authority.clone().unwrap_or_else(|| cluster.clone()),
            cluster,
        };
        clusters.into_iter().map(plane).collect()
    }
}

impl Config {
    /// A control plane by its position, for the log.
    #[must_use]
    pub fn plane(&self, at: usize) -> String {
        let plane = self.control_planes.get(at);
        let name = plane.map_or("", |plane| plane.cluster.as_str());
        format!("the control plane at cluster {name}")
    }

    /// All of them, for the log.
    #[must_use]
    pub fn planes(&self) -> String {
        let names: Vec<_> = self
            .control_planes
            .iter()
            .map(|p| p.cluster.as_str())
            .collect();
        format!("control plane at cluster {}", names.join(", then "))
    }
}

/// Reads the configuration. The error says everything that is wrong, for the log.
pub fn parse(json: &[u8]) -> Result<Config, String> {
    let raw: Raw = serde_json::from_slice(json).map_err(|e| e.to_string())?;
    let mut wrong = Vec::new();
    if raw.control_plane.is_some() == raw.standalone.is_some() {
        wrong.push("control_plane, standalone: one of them is needed, and not both".to_owned());
    }
    let (control_planes, authorization) = match raw.control_plane {
        Some(control_plane) => control_plane.check(&mut wrong),
        None => Default::default(),
    };
    let standalone = raw.standalone.map(|raw| raw.check(&mut wrong));
    let path_prefixes = raw.path_prefixes.unwrap_or_else(|| vec![String::new()]);
    for p in &path_prefixes {
        if !p.is_empty() && (!p.starts_with('/') || p.ends_with('/')) {
            wrong.push(format!(
                "path_prefixes: {p:?} must start with / and not end with it"
            ));
        }
    }
    let max_body_bytes = raw.max_body_bytes.unwrap_or(MAX_BODY_BYTES);
    let max_chunked_body_bytes = raw.max_chunked_body_bytes.unwrap_or(0);
    if max_chunked_body_bytes > max_body_bytes {
        wrong.push("max_chunked_body_bytes: must not be larger than max_body_bytes".to_owned());
    }
    let percent = raw.percent.unwrap_or(100);
    if percent > 100 {
        wrong.push("percent: must be 0 to 100".to_owned());
    }
    let is_name = |name: &String| {
        let bytes = name.bytes();
        !name.is_empty()
            && bytes
                .into_iter()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    if raw.debug_header.as_ref().is_some_and(|name| !is_name(name)) {
        wrong.push(
            "debug_header: a header's name of small letters, digits and - is needed".to_owned(),
        );
    }
    if !wrong.is_empty() {
        return Err(wrong.join("; "));
    }
    Ok(Config {
        control_planes,
        authorization,
        standalone,
        max_body_bytes,
        max_chunked_body_bytes,
        path_prefixes,
        hold_headers: raw.hold_headers.unwrap_or(true),
        stale_after_ms: raw.stale_after_ms.unwrap_or(STALE_AFTER_MS),
        timing_sample: raw.timing_sample.unwrap_or(TIMING_SAMPLE),
        full_report_sample: raw.full_report_sample.unwrap_or(0),
        session_from_user: raw.session_from_user.unwrap_or(false),
        debug_header: raw.debug_header,
        mode: raw.mode.unwrap_or_default(),
        percent,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_that_works() {
        let c = parse(br#"{"control_plane": {"cluster": "cp", "token": "t"}}"#).unwrap();
        let plane = ControlPlane {
            cluster: "cp".to_owned(),
            authority: "cp".to_owned(),
        };
        assert_eq!(c.control_planes, [plane]);
        assert_eq!(c.authorization, "Bearer t");
        assert_eq!(c.max_body_bytes, MAX_BODY_BYTES);
        assert_eq!(c.path_prefixes, [""]);
    }

    #[test]
    fn everything_wrong_is_said_at_once() {
        let json =
            br#"{"control_plane": {"cluster": "", "token": "a b"}, "path_prefixes": ["x/"]}"#;
        let e = parse(json).unwrap_err();
        for part in [
            "control_plane.cluster",
            "control_plane.token",
            "path_prefixes",
        ] {
            assert!(e.contains(part), "{e}");
        }
    }

    #[test]
    fn control_planes_in_order() {
        let of = |fields: &str| {
            parse(format!(r#"{{"control_plane": {{"token": "t", {fields}}}}}"#).as_bytes())
        };
        let c = of(r#""clusters": ["cp-0", "cp-1"]"#).unwrap();
        let authorities: Vec<_> = c.control_planes.iter().map(|p| &p.authority[..]).collect();
        assert_eq!(authorities, ["cp-0", "cp-1"]);
        let c = of(r#""clusters": ["cp-0", "cp-1"], "authority": "cp""#).unwrap();
        assert!(c.control_planes.iter().all(|p| p.authority == "cp"));
        for (fields, why) in [
            (r#""clusters": []"#, "control_plane.clusters: the name"),
            (
                r#""clusters": ["a", ""]"#,
                "control_plane.clusters: the name",
            ),
            (r#""clusters": ["a", "b", "a"]"#, "twice"),
            (
                r#""clusters": ["a", "b", "c", "d", "e", "f", "g", "h", "i"]"#,
                "8 at most",
            ),
            (r#""clusters": ["a"], "cluster": "b""#, "either"),
            (r#""authority": "a""#, "either"),
        ] {
            let error = of(fields).unwrap_err();
            assert!(error.contains(why), "{fields}: {error}");
        }
    }

    #[test]
    fn unknown_fields_are_refused() {
        let json = br#"{"control_plane": {"cluster": "c", "token": "t"}, "max_body_byte": 1}"#;
        let e = parse(json).unwrap_err();
        assert!(
            e.contains("max_body_byte") && e.contains("max_body_bytes"),
            "{e}"
        );
        assert!(parse(b"").is_err());
    }
}
