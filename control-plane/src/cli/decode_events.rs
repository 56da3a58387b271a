//! `prefix-picker decode-events`: what the engines said, readable.
//!
//! Standard output holds one JSON object per event and nothing else; remarks go to standard error.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use base64::Engine as _;
use serde::{Deserialize, Serialize};

use crate::events::{EngineHash, KvEvent, KvEventBatch, Removed, Stored, decode_batch, frame};

/// The form of the lines. A field that is added keeps it; one that changes or goes does not.
pub const SCHEMA: &str = "prefix-picker.kv-event/1";

/// Arguments of `decode-events`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  prefix-picker decode-events capture.jsonl
  prefix-picker decode-events capture.jsonl --json | jq -c 'select(.type == \"removed\")'
  prefix-picker decode-events --payload-hex payloads.json

Exit codes: 0 all of it was read; 1 some of it was not (said on standard error); 2 the file cannot be read.")]
pub struct Args {
    /// JSON lines with `frames_b64`, the frames of one ZMQ message in base64: live (topic, sequence,
    /// payload) or of a replay; lines without it and END markers are passed over
    pub file: PathBuf,
    /// FILE is JSON with `payload_hex` instead: an array of objects, or one object a line
    #[arg(long)]
    pub payload_hex: bool,
    /// Have each line name its form (`prefix-picker.kv-event/1`); lines are JSON without it, too
    #[arg(long)]
    pub json: bool,
}

/// Prints the events of a file. The exit code is 1 where anything in it could not be read. A reader
/// that goes away, like `head`, ends it quietly.
///
/// # Errors
/// Where the file cannot be read or standard output cannot be written.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let text = super::usable(read(&args.file))?;
    let mut printer = Printer {
        out: BufWriter::new(io::stdout().lock()),
        err: io::stderr(),
        schema: args.json.then_some(SCHEMA),
        bad: 0,
        payloads: 0,
    };
    let printed = if args.payload_hex {
        printer.payloads(&text)
    } else {
        printer.frames(&text)
    };
    match printed.and_then(|()| printer.out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(error) => Err(error).context("cannot write"),
        Ok(()) if printer.bad > 0 => Ok(ExitCode::FAILURE),
        Ok(()) => Ok(ExitCode::SUCCESS),
    }
}

fn read(file: &Path) -> anyhow::Result<String> {
    if file == Path::new("-") {
        return io::read_to_string(io::stdin()).context("standard input");
    }
    std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

/// One line of a capture.
#[derive(Deserialize)]
struct CaptureLine {
    frames_b64: Option<Vec<String>>,
}

/// One golden payload.
#[derive(Deserialize)]
struct HexPayload {
    payload_hex: Option<String>,
}

/// One event as printed. The order of the fields is part of the format.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    schema: Option<&'static str>,
    seq: Option<u64>,
    rank: Option<i64>,
    r#type: &'static str,
    hashes: Vec<String>,
    parent: Option<String>,
    tokens: Option<usize>,
    block_size: Option<u32>,
    medium: Option<&'a str>,
    lora: Option<String>,
    group: Option<u32>,
    kind: Option<&'a str>,
}

impl<'a> Line<'a> {
    fn new(seq: Option<u64>, rank: Option<i64>, event: &'a KvEvent) -> Self {
        match event {
            KvEvent::Stored(stored) => Self::stored(seq, rank, stored),
            KvEvent::Removed(removed) => Self::removed(seq, rank, removed),
            KvEvent::Cleared => Self::empty(seq, rank, "cleared"),
        }
    }

    fn empty(seq: Option<u64>, rank: Option<i64>, r#type: &'static str) -> Self {
        Self {
            schema: None,
            seq,
            rank,
            r#type,
            hashes: Vec::new(),
            parent: None,
            tokens: None,
            block_size: None,
            medium: None,
            lora: None,
            group: None,
            kind: None,
        }
    }

    fn stored(seq: Option<u64>, rank: Option<i64>, event: &'a Stored) -> Self {
        Self {
            hashes: event.hashes.iter().map(EngineHash::to_string).collect(),
            parent: event.parent.as_ref().map(EngineHash::to_string),
            tokens: Some(event.tokens.len()),
            block_size: event.block_size_given.then_some(event.block_size),
            medium: event.medium.as_deref(),
            lora: event
                .lora_name
                .clone()
                .or_else(|| event.lora_id.map(|id| id.to_string())),
            group: event.group,
            kind: event.kind.as_deref(),
            ..Self::empty(seq, rank, "stored")
        }
    }

    fn removed(seq: Option<u64>, rank: Option<i64>, event: &'a Removed) -> Self {
        Self {
            hashes: event.hashes.iter().map(EngineHash::to_string).collect(),
            medium: event.medium.as_deref(),
            group: event.group,
            ..Self::empty(seq, rank, "removed")
        }
    }
}

/// Where the lines and the remarks go.
struct Printer<O, E> {
    out: O,
    err: E,
    schema: Option<&'static str>,
    bad: u64,
    /// Payloads found with `--payload-hex`.
    payloads: u64,
}

impl<O: Write, E: Write> Printer<O, E> {
    /// A capture: JSON lines.
    fn frames(&mut self, text: &str) -> io::Result<()> {
        for (number, line) in text
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.trim().is_empty())
        {
            let place = format!("line {}", number + 1);
            match serde_json::from_str::<CaptureLine>(line) {
                Err(error) => self.problem(&place, &error)?,
                Ok(CaptureLine { frames_b64: None }) => {}
                Ok(CaptureLine {
                    frames_b64: Some(frames),
                }) => self.message(&place, &frames)?,
            }
        }
        Ok(())
    }

    fn message(&mut self, place: &str, frames: &[String]) -> io::Result<()> {
        let engine = base64::engine::general_purpose::STANDARD;
        let frames: Vec<Vec<u8>> = match frames.iter().map(|frame| engine.decode(frame)).collect() {
            Ok(frames) => frames,
            Err(error) => return self.problem(place, &error),
        };
        match frame::parse(&frames) {
            Err(error) => self.problem(place, &error),
            Ok(frame::Frame::End) => Ok(()),
            Ok(frame::Frame::Batch { seq, payload, .. }) => self.payload(place, Some(seq), payload),
        }
    }

    /// Golden payloads: a JSON array, or JSON lines.
    fn payloads(&mut self, text: &str) -> io::Result<()> {
        self.each_payload(text)?;
        self.none_found()
    }

    fn each_payload(&mut self, text: &str) -> io::Result<()> {
        if text.trim_start().starts_with('[') {
            return match serde_json::from_str::<Vec<HexPayload>>(text) {
                Err(error) => self.problem("the array", &error),
                Ok(payloads) => {
                    payloads
                        .into_iter()
                        .enumerate()
                        .try_for_each(|(number, payload)| {
                            self.hex_payload(&format!("payload {number}"), payload)
                        })
                }
            };
        }
        for (number, line) in text
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.trim().is_empty())
        {
            let place = format!("line {}", number + 1);
            match serde_json::from_str(line) {
                Err(error) => self.problem(&place, &error)?,
                Ok(payload) => self.hex_payload(&place, payload)?,
            }
        }
        Ok(())
    }

    fn hex_payload(&mut self, place: &str, payload: HexPayload) -> io::Result<()> {
        let Some(payload) = payload.payload_hex else {
            return Ok(());
        };
        self.payloads += 1;
        match hex::decode(payload) {
            Err(error) => self.problem(place, &error),
            Ok(payload) => self.payload(place, None, &payload),
        }
    }

    /// Nothing printed must not look like nothing wrong.
    fn none_found(&mut self) -> io::Result<()> {
        if self.payloads > 0 || self.bad > 0 {
            return Ok(());
        }
        self.bad += 1;
        writeln!(
            self.err,
            "no payload_hex in the file: for a capture with frames_b64 leave out --payload-hex"
        )
    }

    fn payload(&mut self, place: &str, seq: Option<u64>, payload: &[u8]) -> io::Result<()> {
        match decode_batch(payload) {
            Err(error) => self.problem(place, &error),
            Ok(batch) => self.batch(place, seq, &batch),
        }
    }

    fn batch(&mut self, place: &str, seq: Option<u64>, batch: &KvEventBatch) -> io::Result<()> {
        for event in &batch.events {
            let line = Line {
                schema: self.schema,
                ..Line::new(seq, batch.rank, event)
            };
            serde_json::to_writer(&mut self.out, &line)?;
            self.out.write_all(b"\n")?;
        }
        for note in &batch.notes {
            writeln!(self.err, "{place}: note: {note}")?;
        }
        for problem in &batch.problems {
            writeln!(self.err, "{place}: {problem}")?;
        }
        let unnamed = u64::from(batch.bad_events).saturating_sub(batch.problems.len() as u64);
        if unnamed > 0 {
            writeln!(self.err, "{place}: and {unnamed} bad events more")?;
        }
        self.bad += u64::from(batch.bad_events);
        Ok(())
    }

    fn problem(&mut self, place: &str, error: &dyn std::error::Error) -> io::Result<()> {
        self.bad += 1;
        writeln!(self.err, "{place}: {error}")
    }
}

#[cfg(test)]
mod tests;
