//! The engines' own settings that change what text a request becomes, under the names of vLLM's
//! flags and environment (vLLM 0.33: `entrypoints/launchers/cli_args.py`, `config/model.py`).
//!
//! A pool must say the same as its engines' command line: what is not said is taken for vLLM's
//! default.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::{Map, Value};

use super::fields::{Errors, Fields, as_text};
use crate::profiles::TokenizerMode;

/// Fields of a pool that are read here.
pub(super) const FIELDS: &[&str] = &[
    "tokenizer_mode",
    "chat_template",
    "chat_template_content_format",
    "content_format",
    "default_chat_template_kwargs",
    "exclude_tools_when_tool_choice_none",
    "interleave_mm_strings",
    "trust_request_chat_template",
    "reasoning_effort_map",
    "anthropic_disabled_thinking_effort",
    "media_strings",
    "mm_processor_kwargs",
    "media_io_kwargs",
    "enable_tower_connector_lora",
    "utc_offset",
    "system_start_date",
    "harmony_system_instructions",
    "tool_server",
    "vllm_version",
];

/// See the module.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EngineFlags {
    /// `tokenizer_mode`: as the flag `--tokenizer-mode`: `auto`, `hf`, `mistral`, `deepseek_v32`,
    /// `deepseek_v4`, `deepseek_v41`; with `cohere`, `inkling`, `kimi_audio`, `kimi_k3` chats are predicted
    /// only. Default `auto`.
    pub tokenizer_mode: TokenizerMode,
    /// `chat_template`: as the flag `--chat-template`: a file that is used in place of all of the
    /// model's own templates. Default none.
    pub chat_template: Option<PathBuf>,
    /// `chat_template_content_format`, `content_format`: as the flag
    /// `--chat-template-content-format`: `auto`, `string` or `openai`. Default `auto`.
    pub content_format: ContentFormat,
    /// `default_chat_template_kwargs`: as the flag of that name, a mapping. Default none.
    pub default_chat_template_kwargs: Map<String, Value>,
    /// `exclude_tools_when_tool_choice_none`: as the flag of that name. Default `false`.
    pub exclude_tools_when_tool_choice_none: bool,
    /// `interleave_mm_strings`: as the flag of that name. Default `false`.
    pub interleave_mm_strings: bool,
    /// `trust_request_chat_template`: as the flag of that name. Default `false`.
    pub trust_request_chat_template: bool,
    /// `reasoning_effort_map`: as the flag of that name (vLLM 0.33), a mapping. Default none.
    pub reasoning_effort_map: Map<String, Value>,
    /// `anthropic_disabled_thinking_effort`: as the flag of that name: `auto`, `none`, `low`, `medium`,
    /// `high`, `xhigh` or `max`. Default `auto`.
    pub anthropic_disabled_thinking_effort: Option<&'static str>,
    /// `media_strings`: what the engines write for one media item where content is one string, by
    /// modality: `get_placeholder_str` of the model's class. `{i}` stands for the item's number, from
    /// 1. Default none: text is known up to the first item.
    pub media_strings: BTreeMap<String, String>,
    /// `mm_processor_kwargs`, `media_io_kwargs`, `enable_tower_connector_lora`: the engines have one of
    /// these flags, so that a client's `uuid` is not what they call an item and
    /// text is exact up to the first item only. Default: none of them.
    pub renames_media: bool,
    /// `utc_offset`: the engines' time zone, for templates that print the date. `+HH:MM` or `-HH:MM`.
    /// Default `+00:00`.
    pub utc_offset_minutes: i32,
    /// `system_start_date`: as the variable `VLLM_SYSTEM_START_DATE`: the date in gpt-oss prompts,
    /// `YYYY-MM-DD`. Default: the engines' date today.
    pub system_start_date: Option<String>,
    /// `harmony_system_instructions`: as the variable `VLLM_GPT_OSS_HARMONY_SYSTEM_INSTRUCTIONS`: a
    /// system message's text stands in gpt-oss' own one. Default `false`.
    pub harmony_system_instructions: bool,
    /// `tool_server`: the engines have the flag `--tool-server`, whose tools add text to gpt-oss
    /// prompts that we do not know: chats are predicted only. Default `false`.
    pub tool_server: bool,
    /// `vllm_version`: the engines' version, for example `0.32.0`. Default: what most of the pool's
    /// engines answer to `/version`.
    pub vllm_version: Option<String>,
}

/// How the engines give message content to the template.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ContentFormat {
    /// As the template looks.
    #[default]
    Auto,
    /// As one string.
    String,
    /// As a list of parts.
    Openai,
}

/// Reads them out of a pool's fields.
pub(super) fn read(f: &Fields<'_>, errors: &mut Errors) -> EngineFlags {
    let efforts = EFFORTS.map(|effort| (effort, (effort != "auto").then_some(effort)));
    EngineFlags {
        tokenizer_mode: f.choice(
            "tokenizer_mode",
            TokenizerMode::Auto,
            &TokenizerMode::NAMES,
            errors,
        ),
        chat_template: f
            .text("chat_template", "a template's file", errors)
            .map(PathBuf::from),
        content_format: content_format(f, errors),
        default_chat_template_kwargs: f.map("default_chat_template_kwargs", errors),
        exclude_tools_when_tool_choice_none: f.flag(
            "exclude_tools_when_tool_choice_none",
            false,
            errors,
        ),
        interleave_mm_strings: f.flag("interleave_mm_strings", false, errors),
        trust_request_chat_template: f.flag("trust_request_chat_template", false, errors),
        reasoning_effort_map: f.map("reasoning_effort_map", errors),
        anthropic_disabled_thinking_effort: f.choice(
            "anthropic_disabled_thinking_effort",
            None,
            &efforts,
            errors,
        ),
        media_strings: media_strings(f, errors),
        renames_media: renames_media(f, errors),
        utc_offset_minutes: f
            .parsed("utc_offset", "an offset like +02:00", errors, utc_offset)
            .unwrap_or(0),
        system_start_date: f.parsed(
            "system_start_date",
            "a date like 2026-11-29 (quote it)",
            errors,
            |text| is_date(text).then(|| text.to_owned()),
        ),
        harmony_system_instructions: f.flag("harmony_system_instructions", false, errors),
        tool_server: f.flag("tool_server", false, errors),
        vllm_version: f.parsed(
            "vllm_version",
            "a version like 0.32.0 (quote it)",
            errors,
            |text| is_version(text).then(|| text.to_owned()),
        ),
    }
}

/// What `--anthropic-disabled-thinking-effort` takes (vLLM 0.32: `entrypoints/anthropic/protocol.py`).
const EFFORTS: [&str; 7] = ["auto", "none", "low", "medium", "high", "xhigh", "max"];

/// Kinds of media items.
const MODALITIES: [&str; 3] = ["audio", "image", "video"];

fn media_strings(f: &Fields<'_>, errors: &mut Errors) -> BTreeMap<String, String> {
    let at = f.at("media_strings");
    let mut strings = BTreeMap::new();
    for (modality, value) in f.map("media_strings", errors) {
        let path = format!("{at}.{modality}");
        if !MODALITIES.contains(&modality.as_str()) {
            errors.add(&path, "unknown modality: expected audio, image or video");
        } else if let Some(text) = as_text(&value, &path, "a text like <image>", errors) {
            strings.insert(modality, text.to_owned());
        }
    }
    strings
}

fn renames_media(f: &Fields<'_>, errors: &mut Errors) -> bool {
    let kwargs = ["mm_processor_kwargs", "media_io_kwargs"].map(|name| f.map(name, errors));
    f.flag("enable_tower_connector_lora", false, errors)
        || kwargs.iter().any(|kwargs| !kwargs.is_empty())
}

/// vLLM's name, or the short one.
fn content_format(f: &Fields<'_>, errors: &mut Errors) -> ContentFormat {
    const NAMES: [&str; 2] = ["chat_template_content_format", "content_format"];
    let formats = [
        ("auto", ContentFormat::Auto),
        ("string", ContentFormat::String),
        ("openai", ContentFormat::Openai),
    ];
    let [long, short] = NAMES.map(|name| f.choice(name, ContentFormat::Auto, &formats, errors));
    if NAMES.iter().all(|name| f.raw(name).is_some()) {
        errors.add(
            &f.at("content_format"),
            "both this and chat_template_content_format: expected one of them",
        );
    }
    if f.raw("content_format").is_some() {
        short
    } else {
        long
    }
}

/// `MAJOR.MINOR`, and anything after it that begins no further number there.
pub(crate) fn is_version(text: &str) -> bool {
    let mut parts = text.splitn(3, '.');
    let number = |part: Option<&str>| {
        part.is_some_and(|part| {
            part.len() <= 5 && !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit())
        })
    };
    number(parts.next()) && number(parts.next()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// `YYYY-MM-DD`, of a day that there is.
fn is_date(text: &str) -> bool {
    let shape = |(at, byte): (usize, u8)| match at {
        4 | 7 => byte == b'-',
        _ => byte.is_ascii_digit(),
    };
    if text.len() != 10 || !text.bytes().enumerate().all(shape) {
        return false;
    }
    let number =
        |at: std::ops::Range<usize>| text.get(at).and_then(|part| part.parse::<u32>().ok());
    let (Some(year), Some(month), Some(day)) = (number(0..4), number(5..7), number(8..10)) else {
        return false;
    };
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if is_leap => 29,
        2 => 28,
        _ => 0,
    };
    (1..=days).contains(&day)
}

fn utc_offset(text: &str) -> Option<i32> {
    let (sign, rest) = match text.as_bytes().first()? {
        b'+' => (1, text.get(1..)?),
        b'-' => (-1, text.get(1..)?),
        _ => return None,
    };
    let (hours, minutes) = rest.split_once(':')?;
    let digits = |text: &str| {
        (text.len() == 2 && text.bytes().all(|b| b.is_ascii_digit()))
            .then(|| text.parse::<i32>().ok())
            .flatten()
    };
    let (hours, minutes) = (digits(hours)?, digits(minutes)?);
    (hours <= 14 && minutes < 60).then_some(sign * (hours * 60 + minutes))
}
