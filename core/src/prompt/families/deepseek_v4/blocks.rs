//! Tool results become blocks of user messages, next to what the user says.

use std::collections::BTreeMap;

use super::{Skip, Turn, Value, field, is_type, items};

/// A message after that.
pub(super) struct Message {
    pub(super) turn: Turn,
    /// Of a user message.
    blocks: Vec<Block>,
}

enum Block {
    Text(String),
    Result { text: String, call: Option<Value> },
}

impl Message {
    pub(super) fn role(&self) -> &str {
        &self.turn.role
    }

    /// Blocks with an empty line between them.
    pub(super) fn write_blocks(&self, out: &mut String) {
        for (n, block) in self.blocks.iter().enumerate() {
            if n > 0 {
                out.push_str("\n\n");
            }
            match block {
                Block::Text(text) => out.push_str(text),
                Block::Result { text, .. } => {
                    out.push_str("<tool_result>");
                    out.push_str(text);
                    out.push_str("</tool_result>");
                }
            }
        }
    }
}

/// Neighbouring tool results and user messages become one; a task ends it for what the user says.
///
/// V4.1 keeps whatever else a user message holds.
pub(super) fn merge(turns: Vec<Turn>, v41: bool) -> Vec<Message> {
    let mut merged: Vec<Message> = Vec::with_capacity(turns.len());
    for turn in turns {
        let last = merged.last_mut().filter(|last| last.role() == "user");
        let (block, last) = match turn.role.as_str() {
            "tool" => {
                let block = Block::Result {
                    text: result_text(&turn.content),
                    call: turn.tool_call_id.clone(),
                };
                (block, last)
            }
            "user" => {
                let last = last.filter(|last| last.turn.task.is_none());
                (Block::Text(turn.text().to_owned()), last)
            }
            _ => {
                merged.push(Message {
                    turn,
                    blocks: Vec::new(),
                });
                continue;
            }
        };
        match last {
            Some(last) => last.blocks.push(block),
            None => {
                let said = turn.role == "user";
                let kept = Turn {
                    role: "user".to_owned(),
                    task: turn.task.filter(|_| said),
                    tools: turn.tools.filter(|_| said && v41),
                    ..Turn::default()
                };
                merged.push(Message {
                    turn: kept,
                    blocks: vec![block],
                });
            }
        }
    }
    merged
}

/// Parts that are no text are named.
fn result_text(content: &Value) -> String {
    if let Some(text) = content.as_str() {
        return text.to_owned();
    }
    let texts: Vec<String> = items(content)
        .map(|part| {
            let kind = field(&part, "type").unwrap_or_default();
            if is_type(&part, &["text"]) {
                let text = field(&part, "text");
                return text
                    .and_then(|text| text.as_str().map(str::to_owned))
                    .unwrap_or_default();
            }
            format!("[Unsupported {}]", kind.as_str().unwrap_or_default())
        })
        .collect();
    texts.join("\n\n")
}

/// Puts the results of a message into the order of the calls before it.
pub(super) fn sort_results(messages: &mut [Message]) -> Result<(), Skip> {
    let mut order = BTreeMap::new();
    for message in messages {
        match (&message.turn.tool_calls, message.role()) {
            (Some(calls), "assistant") => order = call_order(calls)?,
            (_, "user") if !order.is_empty() => sort_blocks(&mut message.blocks, &order),
            _ => {}
        }
    }
    Ok(())
}

/// Call's id -> its place. The last of equal ids counts.
fn call_order(calls: &Value) -> Result<BTreeMap<String, usize>, Skip> {
    let mut order = BTreeMap::new();
    for (at, call) in items(calls).enumerate() {
        let id = field(&call, "id").filter(Value::is_true);
        let id = id.or_else(|| field(&field(&call, "function")?, "id").filter(Value::is_true));
        if let Some(id) = id {
            let id = id.as_str().ok_or(Skip::Unsupported)?.to_owned();
            order.insert(id, at);
        }
    }
    Ok(order)
}

fn sort_blocks(blocks: &mut [Block], order: &BTreeMap<String, usize>) {
    let place = |block: &Block| match block {
        Block::Result { call, .. } => {
            let id = call.as_ref().and_then(|id| id.as_str());
            id.and_then(|id| order.get(id)).copied().unwrap_or(0)
        }
        Block::Text(_) => 0,
    };
    let mut results: Vec<&mut Block> = blocks
        .iter_mut()
        .filter(|block| matches!(block, Block::Result { .. }))
        .collect();
    let mut taken: Vec<Block> = results
        .iter_mut()
        .map(|block| core::mem::replace(*block, Block::Text(String::new())))
        .collect();
    taken.sort_by_key(place);
    for (slot, block) in results.into_iter().zip(taken) {
        *slot = block;
    }
}
