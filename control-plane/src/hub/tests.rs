//! Against a hub of our own, which answers as huggingface.co does.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Path as UrlPath, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::*;
use crate::profiles::{TokenizerMode, load_model_dir_as};
use prefix_picker_core::prompt::Capability;

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// The settings of an environment.
fn of(set: &[(&str, &str)]) -> Option<Hub> {
    Hub::of(|name| {
        let found = set.iter().find(|(known, _)| *known == name)?;
        Some(found.1.into())
    })
}

fn offline(cache: &Path) -> Hub {
    let cache = cache.to_str().unwrap();
    of(&[("HF_HUB_CACHE", cache), ("HF_HUB_OFFLINE", "1")]).unwrap()
}

#[test]
fn the_cache_is_where_the_library_has_it() {
    let with = |set: &[(&str, &str)]| Some(of(set)?.cache);
    let all = [
        ("HOME", "/home/u"),
        ("XDG_CACHE_HOME", "/x"),
        ("HF_HOME", "/hf"),
        ("HF_HUB_CACHE", "/cache"),
    ];
    let expected = [
        None,
        Some("/home/u/.cache/huggingface/hub"),
        Some("/x/huggingface/hub"),
        Some("/hf/hub"),
        Some("/cache"),
    ];
    for (count, expected) in expected.iter().enumerate() {
        assert_eq!(with(&all[..count]), expected.map(PathBuf::from));
    }
}

#[test]
fn a_revision_leads_to_its_snapshot() {
    let root = std::env::temp_dir().join(format!("prefix-picker-hub-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&root);
    let folder = root.join("models--org--name");
    std::fs::create_dir_all(folder.join("snapshots/abc")).unwrap();
    std::fs::create_dir_all(folder.join("snapshots/def")).unwrap();
    std::fs::create_dir_all(folder.join("refs/pr")).unwrap();
    std::fs::write(folder.join("refs/main"), "abc\n").unwrap();
    std::fs::write(folder.join("refs/pr/1"), "def").unwrap();
    std::fs::write(folder.join("refs/bad"), "../../..").unwrap();
    let at = |revision: Option<&str>| offline(&root).resolve("org/name", revision);
    assert_eq!(at(None).unwrap(), folder.join("snapshots/abc"));
    assert_eq!(at(Some("pr/1")).unwrap(), folder.join("snapshots/def"));
    assert_eq!(at(Some("def")).unwrap(), folder.join("snapshots/def"));
    let missing = at(Some("v2")).unwrap_err().to_string();
    assert!(
        missing.contains("hf download org/name --revision v2"),
        "{missing}"
    );
    assert!(matches!(at(Some("bad")), Err(HubError::Missing { .. })));
    for revision in ["", "..", "a/../b", "/abs", "a b"] {
        assert!(
            matches!(at(Some(revision)), Err(HubError::Revision(_))),
            "{revision:?}"
        );
    }
    for name in ["", "/", "a/b/c", "../x", "a//b", ".hidden/x", "a--b/c"] {
        let found = offline(&root).resolve(name, None);
        assert!(matches!(found, Err(HubError::Name(_))), "{name:?}");
    }
    std::fs::remove_dir_all(&root).unwrap();
}

/// What the fake hub has and was asked for.
#[derive(Default)]
struct Served {
    files: BTreeMap<&'static str, Vec<u8>>,
    /// Required, if any.
    token: Option<&'static str>,
    /// Files come from another path, as large ones do from another host.
    redirects: bool,
    /// Answers nothing at all to a file.
    stalls: bool,
    asked: Mutex<Vec<String>>,
}

/// A hub, and a cache that is removed in the end.
struct Fake {
    served: Arc<Served>,
    hub: Hub,
    _runtime: tokio::runtime::Runtime,
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.hub.cache);
    }
}

impl Fake {
    fn start(name: &str, served: Served) -> Self {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let served = Arc::new(served);
        let router = Router::new()
            .route("/api/models/{org}/{name}/revision/{revision}", get(info))
            .route("/{org}/{name}/resolve/{revision}/{*file}", get(file))
            .route("/store/{*file}", get(stored))
            .with_state(Arc::clone(&served));
        let listener = runtime
            .block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))
            .unwrap();
        let endpoint = format!("http://{}/", listener.local_addr().unwrap());
        runtime.spawn(async move { axum::serve(listener, router).await });
        let cache = format!("prefix-picker-hub-{name}-{}", std::process::id());
        let cache = std::env::temp_dir().join(cache);
        let _ = std::fs::remove_dir_all(&cache);
        let mut hub = of(&[
            ("HF_HUB_CACHE", cache.to_str().unwrap()),
            ("HF_ENDPOINT", &endpoint),
        ])
        .unwrap();
        hub.patience = Duration::from_secs(20);
        Self {
            served,
            hub,
            _runtime: runtime,
        }
    }

    fn resolve(&self) -> Result<PathBuf, HubError> {
        self.hub.resolve("org/name", None)
    }

    /// What was asked for since the last time.
    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.served.asked.lock().unwrap())
    }
}

impl Served {
    fn of(files: &[(&'static str, &str)]) -> Self {
        let files = files
            .iter()
            .map(|(name, text)| (*name, text.as_bytes().to_vec()));
        Self {
            files: files.collect(),
            ..Self::default()
        }
    }

    fn allows(&self, headers: &HeaderMap) -> bool {
        let given = headers.get("authorization").and_then(|v| v.to_str().ok());
        self.token
            .is_none_or(|token| given == Some(&format!("Bearer {token}")))
    }
}

type Path3 = UrlPath<(String, String, String)>;
type Path4 = UrlPath<(String, String, String, String)>;

async fn info(
    State(served): State<Arc<Served>>,
    UrlPath((org, name, revision)): Path3,
    headers: HeaderMap,
) -> Response {
    served
        .asked
        .lock()
        .unwrap()
        .push(format!("info {revision}"));
    if !served.allows(&headers) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let known = ["main", "pr/1", COMMIT].contains(&&*revision);
    if (&*org, &*name) != ("org", "name") || !known {
        return StatusCode::NOT_FOUND.into_response();
    }
    let names = served.files.keys();
    let siblings: Vec<_> = names
        .map(|name| serde_json::json!({"rfilename": name}))
        .collect();
    let info = serde_json::json!({"id": "org/name", "sha": COMMIT, "siblings": siblings});
    axum::Json(info).into_response()
}

async fn file(
    State(served): State<Arc<Served>>,
    UrlPath((_, _, revision, file)): Path4,
    headers: HeaderMap,
) -> Response {
    served.asked.lock().unwrap().push(file.clone());
    if served.stalls {
        std::future::pending::<()>().await;
    }
    if !served.allows(&headers) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let Some(content) = served.files.get(&*file).filter(|_| revision == COMMIT) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let tag = format!("\"tag-{}\"", file.replace('/', "-"));
    let commit = ("x-repo-commit", COMMIT.to_owned());
    if served.redirects {
        let headers = [
            ("location", format!("/store/{file}")),
            ("x-linked-etag", tag),
            commit,
        ];
        return (StatusCode::FOUND, headers).into_response();
    }
    ([("etag", tag), commit], content.clone()).into_response()
}

async fn stored(State(served): State<Arc<Served>>, UrlPath(file): UrlPath<String>) -> Response {
    ([("etag", "another")], served.files[&*file].clone()).into_response()
}

const TOKENIZER: &str = r#"{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "added_tokens": [],
    "decoder": {"type": "ByteLevel"}, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}}"#;

fn model() -> Served {
    Served::of(&[
        ("tokenizer.json", TOKENIZER),
        ("config.json", r#"{"model_type": "x"}"#),
        ("additional_chat_templates/rag.jinja", "rag"),
        ("chat_template.jinja", "hello"),
        ("tekken.json", "{}"),
        ("model-00001-of-00002.safetensors", "weights"),
        ("original/tokenizer.json", "another"),
        ("../../evil.tiktoken", "evil"),
    ])
}

#[test]
fn small_files_are_fetched_once() {
    let fake = Fake::start("once", model());
    let snapshot = fake.resolve().unwrap();
    let folder = fake.hub.cache.join("models--org--name");
    assert_eq!(snapshot, folder.join("snapshots").join(COMMIT));
    let mut asked = fake.asked();
    asked.sort();
    let expected = [
        "additional_chat_templates/rag.jinja",
        "chat_template.jinja",
        "config.json",
        "info main",
        "tekken.json",
        "tokenizer.json",
    ];
    assert_eq!(asked, expected);
    let text = |name: &str| std::fs::read_to_string(snapshot.join(name)).unwrap();
    assert_eq!(text("tokenizer.json"), TOKENIZER);
    assert_eq!(text("additional_chat_templates/rag.jinja"), "rag");
    // As the engines' library has it: a blob, a link to it, and the branch.
    let link = std::fs::read_link(snapshot.join("config.json")).unwrap();
    assert_eq!(link, Path::new("../../blobs/tag-config.json"));
    assert_eq!(
        std::fs::read_to_string(folder.join("refs/main")).unwrap(),
        COMMIT
    );
    // The weights' names tell that vLLM renders this model's chats by the template.
    let files = load_model_dir_as(&snapshot, TokenizerMode::Auto).unwrap();
    assert_eq!(files.profile.chat, Capability::Exact);
    assert_eq!(files.profile.named_templates["rag"], "rag");

    assert_eq!(fake.resolve().unwrap(), snapshot);
    assert_eq!(fake.asked(), ["info main"]);
    std::fs::remove_file(snapshot.join("config.json")).unwrap();
    assert!(matches!(
        offline(&fake.hub.cache).resolve("org/name", None),
        Err(HubError::Missing { .. })
    ));
    fake.resolve().unwrap();
    assert_eq!(fake.asked(), ["info main", "config.json"]);
    assert_eq!(
        offline(&fake.hub.cache).resolve("org/name", None).unwrap(),
        snapshot
    );
    assert_eq!(
        fake.hub.resolve("org/name", Some("pr/1")).unwrap(),
        snapshot
    );
    assert_eq!(
        fake.hub.resolve("org/name", Some(COMMIT)).unwrap(),
        snapshot
    );
    assert_eq!(
        fake.asked(),
        ["info pr/1".to_owned(), format!("info {COMMIT}")]
    );
}

#[test]
fn a_hub_that_is_gone_leaves_the_cache() {
    let mut fake = Fake::start("gone", model());
    let snapshot = fake.resolve().unwrap();
    // Nobody listens there.
    fake.hub.endpoint = "http://127.0.0.1:1".to_owned();
    assert_eq!(fake.resolve().unwrap(), snapshot);
    let found = fake.hub.resolve("org/other", None).unwrap_err();
    assert!(matches!(found, HubError::Unreachable { .. }), "{found}");
    assert!(found.to_string().contains("HF_ENDPOINT"), "{found}");
}

#[test]
fn refusals_say_what_to_do() {
    let mut served = model();
    served.token = Some("secret");
    served.redirects = true;
    let mut fake = Fake::start("token", served);
    let found = fake.resolve().unwrap_err().to_string();
    assert!(
        found.contains("/api/models/org/name/revision/main: 401"),
        "{found}"
    );
    assert!(found.contains("set HF_TOKEN"), "{found}");
    fake.hub.token = Some("secret".to_owned());
    let snapshot = fake.resolve().unwrap();
    // The hub's tag, not that of the store that it redirects to.
    let link = std::fs::read_link(snapshot.join("config.json")).unwrap();
    assert_eq!(link, Path::new("../../blobs/tag-config.json"));
    for (model, revision) in [("org/name", "v9"), ("org/other", "main")] {
        let found = fake
            .hub
            .resolve(model, Some(revision))
            .unwrap_err()
            .to_string();
        assert!(found.contains("404: no such model or revision"), "{found}");
    }
}

#[test]
fn a_file_has_its_limits() {
    let mut fake = Fake::start("large", model());
    fake.hub.file_bytes_max = TOKENIZER.len() as u64 - 1;
    let found = fake.resolve().unwrap_err();
    assert!(matches!(found, HubError::TooLarge { .. }), "{found}");
    // What came before is not taken for the model.
    assert!(
        offline(&fake.hub.cache)
            .resolve("org/name", Some(COMMIT))
            .is_err()
    );
    fake.hub.file_bytes_max += 1;
    fake.resolve().unwrap();

    let mut served = model();
    served.stalls = true;
    let mut fake = Fake::start("stalls", served);
    fake.hub.patience = Duration::from_millis(100);
    let found = fake.resolve().unwrap_err();
    assert!(matches!(found, HubError::Unreachable { .. }), "{found}");
}

#[test]
fn the_environment_says_whom_to_ask() {
    let hub = of(&[("HOME", "/home/u")]).unwrap();
    assert_eq!(
        (&*hub.endpoint, hub.token, hub.offline),
        (ENDPOINT, None, false)
    );
    let hub = of(&[
        ("HOME", "/home/u"),
        ("HF_TOKEN", " secret\n"),
        ("HF_ENDPOINT", "https://mirror/"),
        ("HF_HUB_OFFLINE", "true"),
    ]);
    let hub = hub.unwrap();
    assert_eq!(
        (&*hub.endpoint, hub.token.as_deref(), hub.offline),
        ("https://mirror", Some("secret"), true)
    );
    let root = std::env::temp_dir().join(format!("prefix-picker-hub-home-{}", std::process::id()));
    std::fs::create_dir_all(&root).unwrap();
    std::fs::write(root.join("token"), "stored\n").unwrap();
    let hub = of(&[("HF_HOME", root.to_str().unwrap())]).unwrap();
    assert_eq!(hub.token.as_deref(), Some("stored"));
    std::fs::remove_dir_all(&root).unwrap();
}
