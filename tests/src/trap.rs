//! A filter that traps, without a line of the product that does: the compiled filter, with the body of
//! one of its functions replaced by `unreachable`.
//!
//! Reads just enough of the binary format (<https://webassembly.github.io/spec/core/binary/>): which
//! function an export is, and where its code lies.

use anyhow::{Context, Result, bail};

const IMPORTS: u8 = 2;
const EXPORTS: u8 = 7;
const CODE: u8 = 10;
/// Kinds of imports and exports.
const FUNCTION: u8 = 0;

/// The module with the function exported as `export` made to trap at once.
///
/// # Errors
/// It is no module, or exports no such function of its own.
pub fn trapping(module: &[u8], export: &str) -> Result<Vec<u8>> {
    let imported = imported_functions(section(module, IMPORTS)?)?;
    let function = exported_function(section(module, EXPORTS)?, export)?;
    let own = function.checked_sub(imported).context("it is imported")?;
    let mut code = section(module, CODE)?;
    let count = code.number()?;
    if own >= count {
        bail!("no code of function {function}");
    }
    for _ in 0..own {
        let size = code.number()?;
        code.skip(size)?;
    }
    let size = usize::try_from(code.number()?)?;
    let at = code.at;
    let mut trapping = module.to_vec();
    let body = trapping.get_mut(at..at + size).context("cut off")?;
    // No locals, `unreachable`, as many `nop` as keep the length, `end`.
    body.fill(0x01);
    let (Some(last), true) = (size.checked_sub(1), size >= 3) else {
        bail!("the function is too short");
    };
    body[0] = 0x00;
    body[1] = 0x00;
    body[last] = 0x0b;
    Ok(trapping)
}

/// A reader at some place of the module.
#[derive(Clone, Copy)]
struct Reader<'a> {
    module: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Result<u8> {
        let byte = *self.module.get(self.at).context("cut off")?;
        self.at += 1;
        Ok(byte)
    }

    /// An unsigned LEB128 number.
    fn number(&mut self) -> Result<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        bail!("a number is too long")
    }

    fn skip(&mut self, bytes: u64) -> Result<()> {
        self.at = self
            .at
            .checked_add(usize::try_from(bytes)?)
            .context("cut off")?;
        Ok(())
    }

    fn name(&mut self) -> Result<&'a [u8]> {
        let length = self.number()?;
        let from = self.at;
        self.skip(length)?;
        self.module.get(from..self.at).context("cut off")
    }

    fn limits(&mut self) -> Result<()> {
        let flags = self.byte()?;
        self.number()?;
        if flags & 1 != 0 {
            self.number()?;
        }
        Ok(())
    }
}

/// Where a section's content begins.
fn section(module: &[u8], wanted: u8) -> Result<Reader<'_>> {
    if !module.starts_with(b"\0asm") {
        bail!("not a module");
    }
    let mut reader = Reader { module, at: 8 };
    while reader.at < module.len() {
        let id = reader.byte()?;
        let size = reader.number()?;
        if id == wanted {
            return Ok(reader);
        }
        reader.skip(size)?;
    }
    bail!("no section {wanted}")
}

fn imported_functions(mut imports: Reader<'_>) -> Result<u64> {
    let mut functions = 0;
    for _ in 0..imports.number()? {
        imports.name()?;
        imports.name()?;
        match imports.byte()? {
            FUNCTION => {
                imports.number()?;
                functions += 1;
            }
            // A table: type and limits; a memory: limits; a global: type, mutable or not.
            1 => {
                imports.byte()?;
                imports.limits()?;
            }
            2 => imports.limits()?,
            3 => imports.skip(2)?,
            kind => bail!("an import of kind {kind}"),
        }
    }
    Ok(functions)
}

fn exported_function(mut exports: Reader<'_>, wanted: &str) -> Result<u64> {
    for _ in 0..exports.number()? {
        let name = exports.name()?;
        let kind = exports.byte()?;
        let index = exports.number()?;
        if name == wanted.as_bytes() && kind == FUNCTION {
            return Ok(index);
        }
    }
    bail!("no function {wanted}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Imports a memory and a function, exports its own two: `one` returns 1, `two` calls the import.
    const MODULE: &[u8] = b"\0asm\x01\0\0\0\
        \x01\x08\x02\x60\0\0\x60\0\x01\x7f\
        \x02\x0e\x02\x01e\x01m\x02\0\x01\x01e\x01f\0\0\
        \x03\x03\x02\x01\0\
        \x07\x0d\x02\x03one\0\x01\x03two\0\x02\
        \x0a\x0b\x02\x04\0\x41\x01\x0b\x04\0\x10\0\x0b";

    #[test]
    fn only_the_one_function_traps() {
        let trapping = trapping(MODULE, "two").unwrap();
        let (before, after) = (&MODULE[..MODULE.len() - 4], &MODULE[MODULE.len() - 4..]);
        assert_eq!(after, [0, 0x10, 0, 0x0b]);
        assert!(trapping.starts_with(before));
        assert_eq!(trapping[before.len()..], [0, 0, 1, 0x0b]);
    }

    #[test]
    fn what_is_not_there_is_said() {
        assert!(super::trapping(MODULE, "three").is_err());
        assert!(super::trapping(b"\0asm", "two").is_err());
        assert!(super::trapping(&MODULE[..MODULE.len() - 3], "two").is_err());
    }
}
