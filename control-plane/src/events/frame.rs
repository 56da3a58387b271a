//! The frames of one ZMQ message: live, or answers of an engine's replay socket.
//!
//! | what | frames |
//! |---|---|
//! | live | topic, sequence, payload |
//! | replay, vLLM up to 0.25 | empty, sequence, payload |
//! | replay, vLLM 0.26 and later, SGLang | empty, topic, sequence, payload |
//! | end of replay | as replay, the sequence all ones, the payload empty |
//!
//! They are read from the tail, where all agree. A topic may itself be empty.

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A batch of events.
    Batch {
        /// The publisher's topic; empty where the message has none.
        topic: &'a [u8],
        /// The batch's number: 0, 1, 2, ... since the engine's start.
        seq: u64,
        /// What [`super::decode_batch`] reads.
        payload: &'a [u8],
    },
    /// The replay has ended.
    End,
}

/// The frames are not a message of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Not 2 to 4 frames.
    #[error("a message of {0} frames; an engine sends 3 or 4")]
    Count(usize),
    /// The sequence frame has another length than 8.
    #[error("the sequence frame has {0} bytes, not 8")]
    Sequence(usize),
}

/// The sequence number of an END marker.
pub const END_SEQUENCE: u64 = u64::MAX;

/// Reads a message's frames. Two frames are accepted too: a socket library may have taken the
/// delimiter off a replay of vLLM 0.25 or older.
///
/// # Errors
/// Where the number of frames or the length of the sequence frame is wrong.
pub fn parse<T: AsRef<[u8]>>(frames: &[T]) -> Result<Frame<'_>, FrameError> {
    let (topic, seq, payload) = match frames {
        [seq, payload] => (&[][..], seq.as_ref(), payload.as_ref()),
        [topic, seq, payload] | [_, topic, seq, payload] => {
            (topic.as_ref(), seq.as_ref(), payload.as_ref())
        }
        _ => return Err(FrameError::Count(frames.len())),
    };
    let seq = <[u8; 8]>::try_from(seq).map_err(|_| FrameError::Sequence(seq.len()))?;
    match u64::from_be_bytes(seq) {
        END_SEQUENCE => Ok(Frame::End),
        seq => Ok(Frame::Batch {
            topic,
            seq,
            payload,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEQ: &[u8] = &[0, 0, 0, 0, 0, 0, 1, 2];
    const END: &[u8] = &[0xff; 8];

    #[test]
    fn every_form_of_a_batch() {
        let forms: [&[&[u8]]; 4] = [
            &[b"kv@pod", SEQ, b"p"],
            &[b"", SEQ, b"p"],
            &[b"", b"kv@pod", SEQ, b"p"],
            &[SEQ, b"p"],
        ];
        let topics: [&[u8]; 4] = [b"kv@pod", b"", b"kv@pod", b""];
        for (form, topic) in forms.into_iter().zip(topics) {
            assert_eq!(
                parse(form),
                Ok(Frame::Batch {
                    topic,
                    seq: 258,
                    payload: b"p"
                })
            );
        }
    }

    #[test]
    fn every_form_of_the_end() {
        let forms: [&[&[u8]]; 3] = [&[b"", END, b""], &[b"", b"", END, b""], &[END, b""]];
        for form in forms {
            assert_eq!(parse(form), Ok(Frame::End));
        }
    }

    #[test]
    fn other_messages_are_refused() {
        assert_eq!(parse::<&[u8]>(&[]), Err(FrameError::Count(0)));
        assert_eq!(parse(&[SEQ]), Err(FrameError::Count(1)));
        assert_eq!(parse(&[SEQ; 5]), Err(FrameError::Count(5)));
        assert_eq!(
            parse::<&[u8]>(&[b"t", b"1234567", b"p"]),
            Err(FrameError::Sequence(7))
        );
    }
}
