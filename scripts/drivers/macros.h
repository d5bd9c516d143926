/* SPDX-License-Identifier: GPL-2.0 */
/* What spatch has to know to parse the functions behind these macros. */
#define UVERBS_HANDLER(name) name
