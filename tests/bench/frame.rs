//! KV event frames as vLLM 0.32 sends them.

use anyhow::Result;
use rmp::encode::{write_array_len, write_f64, write_map_len, write_nil, write_str, write_uint};

/// A batch of one `BlockStored`.
pub(crate) fn stored(
    hashes: &[u64],
    parent: Option<u64>,
    tokens: &[u32],
    block_size: u32,
) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    write_array_len(&mut out, 3)?;
    write_f64(&mut out, 1_795_976_522.15)?;
    write_array_len(&mut out, 1)?;
    write_map_len(&mut out, 10)?;
    write_str(&mut out, "type")?;
    write_str(&mut out, "BlockStored")?;
    write_str(&mut out, "block_hashes")?;
    write_array_len(&mut out, u32::try_from(hashes.len())?)?;
    for hash in hashes {
        write_uint(&mut out, *hash)?;
    }
    write_str(&mut out, "parent_block_hash")?;
    match parent {
        Some(hash) => drop(write_uint(&mut out, hash)?),
        None => write_nil(&mut out)?,
    }
    write_str(&mut out, "token_ids")?;
    write_array_len(&mut out, u32::try_from(tokens.len())?)?;
    for token in tokens {
        write_uint(&mut out, u64::from(*token))?;
    }
    write_str(&mut out, "block_size")?;
    write_uint(&mut out, u64::from(block_size))?;
    for absent in ["lora_id", "lora_name"] {
        write_str(&mut out, absent)?;
        write_nil(&mut out)?;
    }
    write_str(&mut out, "medium")?;
    write_str(&mut out, "GPU")?;
    write_str(&mut out, "group_idx")?;
    write_uint(&mut out, 0)?;
    write_str(&mut out, "kv_cache_spec_kind")?;
    write_str(&mut out, "full_attention")?;
    write_uint(&mut out, 0)?;
    Ok(out)
}
