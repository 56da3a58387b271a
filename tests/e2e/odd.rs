//! Requests that are not the plain case: each must fare as in the same Envoy without the filter.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use prefix_picker_tests::stack::{Cut, Options, Places, Stack};

use crate::trailers;

/// One way of sending something odd, as curl's arguments.
struct Odd {
    name: &'static str,
    args: Vec<String>,
}

/// What comes of an upload, with and without the filter, where an engine closes the connection while it
/// still comes: the engine's answer; Envoy's own to the reset, or that more has been sent than can be kept
/// for another try; and that curl cannot send the rest, or read.
const CUT_SHORT: [&str; 5] = ["404", "503", "507", "curl-55", "curl-56"];

impl Odd {
    /// An engine knows from the headers that it will not take it, and which is seen first, its answer
    /// or its closing, is a race.
    fn refused_early(&self) -> bool {
        self.name.starts_with("multipart upload")
    }
}

/// At Envoy's stock limits and at the shipped, raised ones.
pub(crate) async fn odd(places: &Places, short: bool) -> Result<()> {
    let mut wrong = Vec::new();
    for stock in [true, false] {
        println!(
            "  {}:",
            if stock {
                "Envoy's stock limits"
            } else {
                "the shipped limits"
            }
        );
        let with = Stack::start("odd-with", places, options(stock, &[])).await?;
        let mut without = options(stock, &with.ports.engines);
        without.no_control_plane = true;
        without.envoy_cuts.push(Cut {
            from: "          - name: prefix-picker\n".to_owned(),
            until: "          - name: envoy.filters.http.router".to_owned(),
        });
        let without = Stack::start("odd-without", places, without).await?;
        wrong.extend(compare(&with, &without, short)?);
        let mut with = with;
        trailers(&mut with, &without).await?;
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        with.log.refresh()?;
        println!("    counted by reason: {:?}", with.log.reasons());
        let panics = with
            .envoy
            .as_ref()
            .map(|e| e.log_tail(10_000))
            .unwrap_or_default();
        ensure!(
            !panics.contains("panicked"),
            "the filter panicked: {}",
            with.dir.display()
        );
    }
    ensure!(
        wrong.is_empty(),
        "with the filter otherwise than without it:\n{}",
        wrong.join("\n")
    );
    Ok(())
}

async fn trailers(with: &mut Stack, without: &Stack) -> Result<()> {
    let body = chat(60_000);
    let a = trailers::send(with.ports.envoy, body.as_bytes(), "trailers").await?;
    let b = trailers::send(without.ports.envoy, body.as_bytes(), "trailers").await?;
    println!(
        "    {:<34}{a:<8}without the filter: {b}",
        "60 KB and trailers over HTTP/2"
    );
    ensure!(a == b, "with trailers: {a} instead of {b}");
    let reason = with.log.wait("trailers").await?.reason.unwrap_or_default();
    ensure!(
        ["prefix", "load"].contains(&reason.as_str()),
        "with trailers: {reason}"
    );
    Ok(())
}

fn options(stock: bool, engines: &[(u16, u16, u16)]) -> Options {
    // Room for the 500 KB prompt.
    let engine_args = [
        "--blocks",
        "40000",
        "--max-model-len",
        "600000",
        "--speed",
        "0",
    ]
    .map(String::from)
    .to_vec();
    let mut options = Options {
        external_engines: engines.to_vec(),
        engine_args,
        ..Options::default()
    };
    if stock {
        let cut = |from: &str, until: &str| Cut {
            from: from.to_owned(),
            until: until.to_owned(),
        };
        options.envoy_cuts.push(cut(
            "              request_body_buffer_limit",
            "              routes:",
        ));
        options.envoy_cuts.push(cut(
            ",\n                      \"max_body_bytes\"",
            "\n                    }",
        ));
    }
    options
}

fn compare(with: &Stack, without: &Stack, short: bool) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for odd in all(&with.dir, short)? {
        let a = send(&odd, with.ports.envoy)?;
        let b = send(&odd, without.ports.envoy)?;
        println!("    {:<34}{a:<8}without the filter: {b}", odd.name);
        let cut_short = |status: &String| CUT_SHORT.contains(&status.as_str());
        let race = odd.refused_early() && cut_short(&a) && cut_short(&b);
        if a != b && !race && !also_without(&odd, &a, without)? {
            wrong.push(format!("{}: {a} instead of {b}", odd.name));
        }
    }
    Ok(wrong)
}

/// An engine that refuses an upload while it still comes answers or resets, as it happens: whether the
/// same is seen without the filter in some of many tries.
fn also_without(odd: &Odd, status: &str, without: &Stack) -> Result<bool> {
    for _ in 0..40 {
        if send(odd, without.ports.envoy)? == status {
            println!("    (a race: {status} is also seen without the filter)");
            return Ok(true);
        }
    }
    Ok(false)
}

/// The status that curl saw, or curl's own error.
fn send(odd: &Odd, port: u16) -> Result<String> {
    let url = |path: &str| format!("http://127.0.0.1:{port}{path}");
    let args = odd
        .args
        .iter()
        .map(|a| a.strip_prefix("URL").map_or_else(|| a.clone(), &url));
    let out = Command::new("curl")
        .args([
            "-sS",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
            "--max-time",
            "60",
            "--noproxy",
            "*",
        ])
        .args(args)
        .output()
        .context("curl")?;
    let status = String::from_utf8_lossy(&out.stdout).into_owned();
    Ok(if status == "000" {
        format!("curl-{}", out.status.code().unwrap_or(-1))
    } else {
        status
    })
}

/// A chat body of about `size` bytes.
fn chat(size: usize) -> String {
    let text = "many words of one and the same prompt ".repeat(size / 38 + 1);
    format!(r#"{{"model":"sim","max_tokens":1,"messages":[{{"role":"user","content":"{text}"}}]}}"#)
}

fn all(dir: &Path, short: bool) -> Result<Vec<Odd>> {
    let file = |name: &str, content: &[u8]| -> Result<String> {
        let path = dir.join(name);
        std::fs::write(&path, content)?;
        Ok(format!("@{}", path.display()))
    };
    let small = file("small.json", chat(2_000).as_bytes())?;
    let half = file("half-a-mib.json", chat(500_000).as_bytes())?;
    let five = file("five-mib.json", chat(5 << 20).as_bytes())?;
    let hundred = file(
        "hundred-mb.json",
        chat(if short { 40_000_000 } else { 100_000_000 }).as_bytes(),
    )?;
    let twenty = file("twenty-mb.json", chat(20_000_000).as_bytes())?;
    let latin = file(
        "latin.json",
        b"{\"model\":\"sim\",\"messages\":[{\"role\":\"user\",\"content\":\"\xe9\xff\"}]}",
    )?;
    let null = file(
        "null.json",
        b"{\"model\":null,\"messages\":[null,1,{\"role\":7,\"content\":{}}]}",
    )?;
    let deep = file(
        "deep.json",
        format!("{}{}", "[".repeat(100_000), "]".repeat(100_000)).as_bytes(),
    )?;
    let json = ["-H", "content-type: application/json"];
    let chunked = ["-H", "transfer-encoding: chunked"];
    let h2 = ["--http2-prior-knowledge"];
    let path = "URL/v1/chat/completions";
    let odd = |name, parts: &[&[&str]], data: &str| Odd {
        name,
        args: parts
            .concat()
            .into_iter()
            .chain(["--data-binary", data, path])
            .map(String::from)
            .collect(),
    };
    let plain = |name, args: &[&str]| Odd {
        name,
        args: args.iter().map(|a| (*a).to_owned()).collect(),
    };
    let form = format!("file={hundred}");
    let mut all = vec![
        odd("2 KB", &[&json], &small),
        odd("2 KB over HTTP/2", &[&json, &h2], &small),
        odd("2 KB chunked", &[&json, &chunked], &small),
        odd("500 KB", &[&json], &half),
        odd("500 KB over HTTP/2", &[&json, &h2], &half),
        odd("500 KB chunked", &[&json, &chunked], &half),
        odd(
            "500 KB, Expect: 100-continue",
            &[&json, &["-H", "expect: 100-continue"]],
            &half,
        ),
        odd("5 MiB", &[&json], &five),
        odd("5 MiB over HTTP/2", &[&json, &h2], &five),
        odd("5 MiB chunked", &[&json, &chunked], &five),
        odd("20 MB over HTTP/2", &[&json, &h2], &twenty),
        odd("20 MB chunked", &[&json, &chunked], &twenty),
        odd("100 MB", &[&json], &hundred),
        odd("100 MB chunked", &[&json, &chunked], &hundred),
        odd("100 MB over HTTP/2", &[&json, &h2], &hundred),
        plain(
            "multipart upload, 100 MB",
            &["-F", &form, "URL/v1/audio/transcriptions"],
        ),
        plain("multipart to the chat path", &["-F", &form, path]),
        odd("empty body", &[&json], ""),
        plain("no body, no length", &["-X", "POST", path]),
        odd("empty body over HTTP/2", &[&json, &h2], ""),
        odd("empty chunked body", &[&json, &chunked], ""),
        odd(
            "broken JSON",
            &[&json],
            "{\"model\":\"sim\",\"messages\":[{",
        ),
        odd("JSON of another shape", &[&json], "[1,2,3]"),
        odd("wrong types", &[&json], &null),
        odd("not UTF-8", &[&json], &latin),
        odd("100,000 brackets", &[&json], &deep),
        odd(
            "unknown model",
            &[&json],
            r#"{"model":"no-such","messages":[{"role":"user","content":"x"}]}"#,
        ),
        odd(
            "no model",
            &[&json],
            r#"{"messages":[{"role":"user","content":"x"}]}"#,
        ),
        odd(
            "content-type text/plain",
            &[&["-H", "content-type: text/plain"]],
            &small,
        ),
        odd(
            "gzip that is none",
            &[&json, &["-H", "content-encoding: gzip"]],
            &small,
        ),
        plain("GET models", &["URL/v1/models"]),
        plain("GET chat", &[path]),
        plain("HEAD", &["-I", path]),
        plain("unknown path", &["-d", "x=1", "URL/nothing/here"]),
    ];
    if short {
        all.retain(|odd| !odd.name.starts_with("20 MB") && !odd.name.starts_with("500 KB over"));
    }
    Ok(all)
}
