//! Token ids -> bytes, laid out so that one memory access and one fixed-size copy do for nearly every
//! token: this is where most of a store's time goes.

use crate::vocab::Vocab;

const CELL_BYTES: usize = 16;
/// Longest token that fits a cell.
const SHORT_MAX: usize = CELL_BYTES - 1;
/// In a cell's last byte: the token is in the blob, at the place that the cell holds.
const LONG: u8 = 0xff;
/// In a cell's last byte: there is no such token.
const UNKNOWN: u8 = 0xfe;

/// Most bytes that one node's tokens may stand for. 16 tokens of any vocabulary seen: 2 KB.
const BYTES_MAX: usize = 1 << 22;

/// A vocabulary for spelling.
pub(super) struct Speller {
    /// Per id: the token's bytes, and its length in the last byte.
    cells: Vec<[u8; CELL_BYTES]>,
    blob: Vec<u8>,
}

/// What a cell says.
enum Token<'a> {
    Short(&'a [u8; CELL_BYTES], usize),
    Long(&'a [u8]),
}

impl Speller {
    pub(super) fn new(vocab: &Vocab) -> Self {
        let mut blob = Vec::new();
        let ids = u32::try_from(vocab.len()).unwrap_or(u32::MAX);
        let cells = (0..ids)
            .map(|id| cell(vocab.bytes(id), &mut blob))
            .collect();
        Self { cells, blob }
    }

    fn token(&self, id: u32) -> Option<Token<'_>> {
        let cell = self.cells.get(id as usize)?;
        let [.., last] = cell;
        match *last {
            UNKNOWN => None,
            LONG => {
                let [a, b, c, d, e, f, g, h, ..] = *cell;
                let start = u32::from_le_bytes([a, b, c, d]) as usize;
                let length = u32::from_le_bytes([e, f, g, h]) as usize;
                self.blob.get(start..start + length).map(Token::Long)
            }
            length => Some(Token::Short(cell, usize::from(length))),
        }
    }

    /// How many bytes a token has.
    pub(super) fn length(&self, id: u32) -> Option<usize> {
        self.token(id).map(|token| match token {
            Token::Short(_, length) => length,
            Token::Long(token) => token.len(),
        })
    }

    /// A token's bytes.
    pub(super) fn bytes(&self, id: u32) -> Option<&[u8]> {
        match self.token(id)? {
            Token::Short(cell, length) => cell.get(..length),
            Token::Long(token) => Some(token),
        }
    }

    /// Puts the bytes of tokens into `bytes`; `false`: some have none, or they are too many.
    pub(super) fn spell(&self, tokens: &[u32], bytes: &mut Vec<u8>) -> bool {
        bytes.clear();
        bytes.resize(tokens.len() * CELL_BYTES + CELL_BYTES, 0);
        let mut at = 0;
        for id in tokens {
            match self.token(*id) {
                // Whole cells are copied; what is too much is overwritten or cut off.
                Some(Token::Short(cell, length)) => {
                    if let Some(place) = bytes.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
                        *place = *cell;
                    }
                    at += length;
                }
                Some(Token::Long(token)) => {
                    if at > BYTES_MAX {
                        return false;
                    }
                    bytes.splice(at..at, token.iter().copied());
                    at += token.len();
                }
                None => return false,
            }
        }
        bytes.truncate(at);
        true
    }

    /// How many of the tokens end within the first `bytes` bytes.
    pub(super) fn tokens_within(&self, tokens: &[u32], bytes: usize) -> usize {
        let mut at = 0;
        tokens
            .iter()
            .take_while(|id| {
                at += self.length(**id).unwrap_or(usize::MAX - at);
                at <= bytes
            })
            .count()
    }
}

fn cell(token: Option<&[u8]>, blob: &mut Vec<u8>) -> [u8; CELL_BYTES] {
    let mut cell = [0; CELL_BYTES];
    let Some(token) = token else {
        cell[SHORT_MAX] = UNKNOWN;
        return cell;
    };
    if token.len() <= SHORT_MAX {
        cell.iter_mut()
            .zip(token)
            .for_each(|(to, from)| *to = *from);
        cell[SHORT_MAX] = u8::try_from(token.len()).unwrap_or(UNKNOWN);
        return cell;
    }
    let place = u32::try_from(blob.len())
        .ok()
        .zip(u32::try_from(token.len()).ok());
    let Some((start, length)) = place else {
        cell[SHORT_MAX] = UNKNOWN;
        return cell;
    };
    blob.extend_from_slice(token);
    let place = start.to_le_bytes().into_iter().chain(length.to_le_bytes());
    cell.iter_mut().zip(place).for_each(|(to, from)| *to = from);
    cell[SHORT_MAX] = LONG;
    cell
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn spelling_equals_the_vocabulary(
            lengths in prop::collection::vec(prop_oneof![4 => 0_usize..16, 1 => 14_usize..300], 1..40),
            tokens in prop::collection::vec(0_u32..45, 0..80),
            within in 0_usize..2000,
        ) {
            let bytes_of = |id: usize, length: usize| (0..length).map(|at| (id * 31 + at * 7) as u8).collect::<Vec<u8>>();
            let listed = lengths.iter().enumerate().filter(|(id, _)| id % 7 != 3);
            let listed = listed.map(|(id, length)| (u32::try_from(id).unwrap(), bytes_of(id, *length))).chain([(50, vec![1])]);
            let vocab = Vocab::from_tokens(listed).unwrap();
            let speller = Speller::new(&vocab);
            let mut bytes = vec![9; 5];
            let mut wanted = Vec::new();
            let known = vocab.append_bytes(&tokens, &mut wanted).is_ok();
            prop_assert_eq!(speller.spell(&tokens, &mut bytes), known);
            if known {
                prop_assert_eq!(&bytes, &wanted);
                let mut end = 0;
                let count = tokens.iter().take_while(|id| { end += vocab.bytes(**id).unwrap().len(); end <= within }).count();
                prop_assert_eq!(speller.tokens_within(&tokens, within), count);
            }
        }
    }
}
