//! One file from the hub, within limits of time and size, and files of the cache on the disk.

use std::io;
use std::path::{Component, Path, PathBuf};

use ureq::http::Response;
use ureq::http::header::{AUTHORIZATION, ETAG, LOCATION};
use ureq::{Agent, Body};

use super::{Hub, HubError, is_part};

/// Most redirects that are followed.
const REDIRECTS_MAX: usize = 5;

/// A file as it came.
pub(super) struct File {
    /// The name of its content.
    pub(super) tag: String,
    pub(super) content: Vec<u8>,
}

/// An answer whose body is still to come.
struct Opened {
    url: String,
    answer: Response<Body>,
    tag: Option<String>,
}

/// Fetches files.
pub(super) struct Transfer<'a> {
    hub: &'a Hub,
    agent: Agent,
}

impl<'a> Transfer<'a> {
    pub(super) fn new(hub: &'a Hub) -> Self {
        let config = Agent::config_builder()
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_connect(Some(hub.patience))
            .timeout_recv_response(Some(hub.patience))
            .timeout_recv_body(Some(hub.patience * 10))
            .timeout_global(Some(hub.patience * 15))
            .user_agent(concat!("prefix-picker/", env!("CARGO_PKG_VERSION")))
            .build();
        Self {
            hub,
            agent: config.into(),
        }
    }

    /// The file at an address of the hub.
    pub(super) fn file(&self, url: &str) -> Result<File, HubError> {
        let mut opened = self.open(url)?;
        let tag = opened.tag.as_deref().and_then(tag_name);
        let tag = tag.ok_or_else(|| HubError::Answer {
            url: url.to_owned(),
            what: "no ETag that can name a file".to_owned(),
        })?;
        let max = self.hub.file_bytes_max;
        let content = content(&opened.url, opened.answer.body_mut(), max)?;
        Ok(File { tag, content })
    }

    /// What an address of the hub answers, in at most so many bytes.
    pub(super) fn bytes(&self, url: &str, max: u64) -> Result<Vec<u8>, HubError> {
        let mut opened = self.open(url)?;
        content(&opened.url, opened.answer.body_mut(), max)
    }

    /// Follows redirects: of a renamed model, or to a store of large files.
    fn open(&self, url: &str) -> Result<Opened, HubError> {
        let mut at = url.to_owned();
        let mut tag = None;
        for _ in 0..=REDIRECTS_MAX {
            let answer = self.call(&at)?;
            // The hub's own word on it goes before that of a store that it redirects to.
            tag = tag.or_else(|| header(&answer, "x-linked-etag"));
            if answer.status().is_redirection() {
                at = next(&at, header(&answer, LOCATION.as_str()))?;
                continue;
            }
            let tag = tag.or_else(|| header(&answer, ETAG.as_str()));
            return Ok(Opened {
                url: at,
                answer,
                tag,
            });
        }
        Err(HubError::Answer {
            url: url.to_owned(),
            what: format!("more than {REDIRECTS_MAX} redirects"),
        })
    }

    fn call(&self, url: &str) -> Result<Response<Body>, HubError> {
        let mut request = self.agent.get(url);
        // The token is for the hub, not for whomever it redirects to.
        let of_hub = url.strip_prefix(&*self.hub.endpoint);
        if let Some(token) = &self.hub.token
            && of_hub.is_some_and(|path| path.starts_with('/'))
        {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        request.call().map_err(|error| failed(url, &error))
    }
}

fn content(url: &str, body: &mut Body, max: u64) -> Result<Vec<u8>, HubError> {
    let too_large = || HubError::TooLarge {
        url: url.to_owned(),
        max,
    };
    if body.content_length().is_some_and(|length| length > max) {
        return Err(too_large());
    }
    match body.with_config().limit(max).read_to_vec() {
        Ok(content) => Ok(content),
        Err(ureq::Error::BodyExceedsLimit(_)) => Err(too_large()),
        Err(error) => Err(failed(url, &error)),
    }
}

fn header(answer: &Response<Body>, name: &str) -> Option<String> {
    let value = answer.headers().get(name)?.to_str().ok()?;
    Some(value.to_owned())
}

/// `W/"abc"` -> `abc`, if that can be a file's name.
fn tag_name(tag: &str) -> Option<String> {
    let name = tag.trim_start_matches("W/").trim_matches('"');
    is_part(name).then(|| name.to_owned())
}

/// Where a redirect leads: another address, or another path of the same host.
fn next(from: &str, location: Option<String>) -> Result<String, HubError> {
    let location = location.unwrap_or_default();
    let (scheme, rest) = from.split_once("://").unwrap_or(("https", from));
    let host = rest.split('/').next().unwrap_or_default();
    if location.starts_with('/') && !location.starts_with("//") {
        return Ok(format!("{scheme}://{host}{location}"));
    }
    // Never from an encrypted connection to an open one.
    if location.starts_with("https://") || (scheme == "http" && location.starts_with("http://")) {
        return Ok(location);
    }
    Err(HubError::Answer {
        url: from.to_owned(),
        what: format!("a redirect to {location:?}"),
    })
}

/// What an error means.
pub(super) fn failed(url: &str, error: &ureq::Error) -> HubError {
    let url = url.to_owned();
    match error {
        // To come again later, or to somebody else.
        ureq::Error::StatusCode(status) if *status < 500 && !matches!(status, 408 | 429) => {
            HubError::Refused {
                url,
                status: *status,
            }
        }
        ureq::Error::BadUri(_) | ureq::Error::BodyExceedsLimit(_) => HubError::Answer {
            url,
            what: error.to_string(),
        },
        _ => HubError::Unreachable {
            url,
            what: error.to_string(),
        },
    }
}

/// Writes a file whole or not at all, and the folders above it.
pub(super) fn write(path: &Path, content: &[u8]) -> Result<(), HubError> {
    let written = || {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{}.incomplete", std::process::id()));
        let part = PathBuf::from(name);
        std::fs::write(&part, content)?;
        std::fs::rename(&part, path)
    };
    written().map_err(|source| HubError::Write {
        path: path.to_owned(),
        source,
    })
}

/// Links `models--x/snapshots/COMMIT/[FOLDER/]NAME` to `models--x/blobs/TAG`, as the library does.
pub(super) fn link(blob: &Path, pointer: &Path) -> Result<(), HubError> {
    let linked = || {
        let folder = pointer.parent().unwrap_or(pointer);
        std::fs::create_dir_all(folder)?;
        let above = folder
            .components()
            .rev()
            .take_while(|part| *part != Component::Normal("snapshots".as_ref()))
            .count();
        let mut target: PathBuf = std::iter::repeat_n("..", above + 1).collect();
        target.extend(["blobs".as_ref(), blob.file_name().unwrap_or_default()]);
        match std::os::unix::fs::symlink(&target, pointer) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                std::fs::remove_file(pointer)?;
                std::os::unix::fs::symlink(&target, pointer)
            }
            other => other,
        }
    };
    linked().map_err(|source| HubError::Write {
        path: pointer.to_owned(),
        source,
    })
}
