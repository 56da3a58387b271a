//! Addresses that were given as arguments.

use reqwest::Url;

/// Each of them once, as it was given first.
pub(super) fn distinct(urls: &[String]) -> Vec<String> {
    let mut seen = std::collections::BTreeSet::new();
    let is_new = |url: &&String| {
        let same = Url::parse(url).map_or_else(|_| (*url).clone(), String::from);
        seen.insert(same.trim_end_matches('/').to_owned())
    };
    urls.iter().filter(is_new).cloned().collect()
}

/// The address alone, if more than that was given.
pub(super) fn without_path(url: &str) -> Option<String> {
    let mut url = Url::parse(url).ok()?;
    if url.path().trim_matches('/').is_empty() && url.query().is_none() {
        return None;
    }
    url.set_path("");
    url.set_query(None);
    url.set_fragment(None);
    Some(url.as_str().trim_end_matches('/').to_owned())
}

/// Its host and port: those of `a` and `b` are surely not the same.
pub(super) fn are_apart(a: &str, b: &str) -> bool {
    let parts = |text: &str| {
        let url = Url::parse(text).ok()?;
        let host = url.host_str()?.trim_matches(['[', ']']).to_owned();
        Some((host, url.port_or_known_default()?))
    };
    let (Some(a), Some(b)) = (parts(a), parts(b)) else {
        return false;
    };
    if a.1 != b.1 {
        return true;
    }
    // A name, or this machine's own address, may well be the other one.
    let ip = |host: &str| {
        host.parse()
            .ok()
            .filter(|ip: &std::net::IpAddr| !ip.is_loopback())
    };
    matches!((ip(&a.0), ip(&b.0)), (Some(a), Some(b)) if a != b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        assert_eq!(without_path("http://[::1]:9901/"), None);
        for more in ["/config_dump", "/v1/status/", "/?a=b"] {
            let bare = without_path(&format!("http://[::1]:9901{more}"));
            assert_eq!(bare.as_deref(), Some("http://[::1]:9901"));
        }
    }

    #[test]
    fn the_same_twice() {
        let urls = ["http://A:1/", "http://a:1", "http://a:2", "http://a:1/x"].map(str::to_owned);
        assert_eq!(
            distinct(&urls),
            ["http://A:1/", "http://a:2", "http://a:1/x"]
        );
    }

    #[test]
    fn apart() {
        let apart = |a: &str, b: &str| are_apart(&format!("http://{a}"), &format!("http://{b}"));
        assert!(apart("10.0.0.1:9400", "10.0.0.1:9401"));
        assert!(apart("10.0.0.1:9400", "10.0.0.2:9400"));
        assert!(apart("[fd00::1]:9400", "[fd00::2]:9400"));
        // Forwarded, or by a name.
        assert!(!apart("10.0.0.1:9400", "127.0.0.1:9400"));
        assert!(!apart("10.0.0.1:9400", "picker:9400"));
        assert!(!apart("[::1]:9400", "[::1]:9400"));
    }
}
