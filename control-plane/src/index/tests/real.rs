//! What real engines sent.

use super::*;
