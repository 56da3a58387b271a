//! What has the right type and can never work is refused, with its place, and all of it at once.

use super::{MINIMAL, discovering, errors};

#[test]
fn names_that_are_none_are_refused_with_their_place() {
    let long = format!("{{dns: {{name: {}}}}}", "a".repeat(64));
    for (discovery, part) in [
        (
            "{kubernetes: {label_selector: 'app=vllm,'}}",
            "pools[0].discovery.kubernetes.label_selector: \"app=vllm,\": has nothing",
        ),
        (
            "{kubernetes: {label_selector: 'app in (a'}}",
            "label_selector: \"app in (a\": has ( without )",
        ),
        (
            "{kubernetes: {label_selector: a=b, namespace: My_Models}}",
            "kubernetes.namespace: \"My_Models\": is no namespace: expected lower-case",
        ),
        (
            "{kubernetes: {inference_pool: 'a pool'}}",
            "inference_pool: \"a pool\": is no object's name",
        ),
        (
            "{kubernetes: {label_selector: a=b, port: HTTP}}",
            "kubernetes.port: \"HTTP\": is no port's name",
        ),
        (
            "{dns: {name: 'a..b'}}",
            "dns.name: \"a..b\": has an empty part",
        ),
        ("{dns: {name: 'a b'}}", "dns.name: \"a b\": has ' ' in it"),
        (&long, "has a part longer than 63"),
        (
            "{dns: {name: n}, health_path: health}",
            "discovery.health_path: \"health\": does not begin with /",
        ),
        (
            "{dns: {name: n}, health_path: '/a b'}",
            "health_path: \"/a b\": has ' ' in it: expected a path like",
        ),
        (
            "{dns: {name: n}, metrics_path: '/metrics?x=1'}",
            "metrics_path: \"/metrics?x=1\": has '?' in it",
        ),
    ] {
        let error = discovering(discovery).unwrap_err();
        assert!(error.contains(part), "{discovery}: {error}");
    }
}

#[test]
fn all_of_it_is_told_at_once() {
    let told = discovering(
        "{kubernetes: {label_selector: '=', namespace: A, port: B-, api_server: x}, topic: 1, metrics_port: 0, \
         metrics_path: m, health_path: h}",
    );
    let told = told.unwrap_err();
    for field in [
        "label_selector",
        "namespace",
        "kubernetes.port",
        "api_server",
        "topic",
        "metrics_port",
        "metrics_path",
        "health_path",
    ] {
        assert!(told.contains(&format!("{field}: ")), "{field}: {told}");
    }
    let told = discovering("{dns: {name: '', interval_ms: 1, server: s}}").unwrap_err();
    for field in ["name", "interval_ms", "server"] {
        assert!(told.contains(&format!("dns.{field}: ")), "{field}: {told}");
    }
}

#[test]
fn hosts_of_events_and_levels_of_the_log() {
    for host in ["a b", "a..b", "[::g]", "10.0.0", "*", "::1"] {
        let text = MINIMAL.replace("tcp://127.0.0.1:", &format!("tcp://{host}:"));
        let text = text
            .replace("events: ", "events: '")
            .replace(":5557", ":5557'");
        let told = errors(&text);
        assert!(told.contains(".events: "), "{host}: {told}");
    }
    for level in ["verbose", "warning", "a=b=c", "info,prefix_picker=loud"] {
        let told = errors(&format!("log_level: {level}\n{MINIMAL}"));
        assert!(told.starts_with("log_level: "), "{level}: {told}");
    }
    for level in [
        "WARN",
        "off",
        "info,prefix_picker=debug",
        "prefix_picker::news=trace",
    ] {
        let told = errors(&format!("log_level: '{level}'\n{MINIMAL}"));
        assert!(told.starts_with("accepted"), "{level}: {told}");
    }
}

/// What the parser's library advises its own users is nothing for ours.
#[test]
fn text_that_is_no_yaml_is_told_in_our_words() {
    for (text, parts) in [
        ("a: b: c\n", &["line 1, column 5"][..]),
        ("listen: [1\ntokens: x\n", &["line "]),
        ("pools:\n\t- a\n", &["line 2", "tab"]),
        ("a: 1\na: 2\n", &["line 2, column 1", "\"a\"", "twice"]),
        ("a: 'x\n", &["line "]),
        ("a: *nowhere\n", &["line 1", "without an anchor", "quote"]),
        ("a: 1\n---\nb: 2\n", &["line 3", "a second document"]),
        ("a: %x\n", &["line 1"]),
        ("", &["empty"]),
        ("{a: 1}}\n", &["line 1"]),
        ("a: !!binary zzz\n", &["line 1"]),
        ("a: \u{0}\n", &["line 1", "remove it"]),
        ("- &a [*a]\n", &["line 1"]),
        ("a: 1\n  b: 2\n", &["line 2"]),
    ] {
        let told = errors(text);
        println!("{text:?}\n    {told}");
        for part in parts {
            assert!(told.contains(part), "{text:?}: no {part:?} in {told}");
        }
        for word in [
            "DuplicateKeyPolicy",
            "Options",
            "from_",
            "serde",
            "saphyr",
            "deserial",
            "Rust",
            "enable",
            "-->",
        ] {
            assert!(!told.contains(word), "{text:?}: {word} in {told}");
        }
    }
}

#[test]
fn what_is_open_in_a_discovery_is_said() {
    for (discovery, said) in [
        (
            "kubernetes: {label_selector: app=vllm}",
            "pods with app=vllm in the namespace of the kubeconfig or the service account",
        ),
        (
            "kubernetes: {inference_pool: llama, namespace: ml, api_server: 'http://127.0.0.1:8001'}",
            "InferencePool llama in namespace ml at http://127.0.0.1:8001",
        ),
        (
            "dns: {name: _http._tcp.vllm.ml.svc, type: srv}",
            "SRV records of _http._tcp.vllm.ml.svc in the DNS",
        ),
    ] {
        let found = discovering(&format!("{{{discovery}}}")).unwrap();
        assert_eq!(found.described(), said);
    }
}
