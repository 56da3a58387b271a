//! JSON -> MessagePack, with an encoder that is not ours. `{"$bytes": "hex"}` becomes bytes.

use serde_json::Value;

/// The shortest encoding of a value.
pub(crate) fn msgpack(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    write(value, &mut out);
    out
}

fn length(length: usize) -> u32 {
    u32::try_from(length).unwrap()
}

fn write(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => rmp::encode::write_nil(out).unwrap(),
        Value::Bool(bool) => rmp::encode::write_bool(out, *bool).unwrap(),
        Value::Number(number) => {
            if let Some(uint) = number.as_u64() {
                rmp::encode::write_uint(out, uint).unwrap();
            } else if let Some(int) = number.as_i64() {
                rmp::encode::write_sint(out, int).unwrap();
            } else {
                rmp::encode::write_f64(out, number.as_f64().unwrap()).unwrap();
            }
        }
        Value::String(text) => rmp::encode::write_str(out, text).unwrap(),
        Value::Array(values) => {
            rmp::encode::write_array_len(out, length(values.len())).unwrap();
            values.iter().for_each(|value| write(value, out));
        }
        Value::Object(entries) => match entries.get("$bytes") {
            Some(bytes) => {
                rmp::encode::write_bin(out, &hex::decode(bytes.as_str().unwrap()).unwrap()).unwrap()
            }
            None => {
                rmp::encode::write_map_len(out, length(entries.len())).unwrap();
                for (key, value) in entries {
                    rmp::encode::write_str(out, key).unwrap();
                    write(value, out);
                }
            }
        },
    }
}
